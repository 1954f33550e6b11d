"""Annotation files made to hurt, by name: their content, and the messages about them."""

from __future__ import annotations

SQUARE = "[[0,0],[8,0],[8,8],[0,8],[0,0]]"


def polygon(rings: str, properties: str = "{}") -> str:
    return feature(f'{{"type":"Polygon","coordinates":{rings}}}', properties)


def feature(geometry: str, properties: str = "{}") -> str:
    return f'[{{"type":"Feature","geometry":{geometry},"properties":{properties}}}]'


def asap(
    points: str = '<Coordinate Order="0" X="0" Y="0"/><Coordinate Order="1" X="9" Y="0"/>'
    '<Coordinate Order="2" X="9" Y="9"/>',
    attributes: str = 'Name="A" Type="Polygon" PartOfGroup="Tumor"',
    before: str = "",
) -> str:
    return (
        f"{before}<ASAP_Annotations><Annotations><Annotation {attributes}><Coordinates>{points}</Coordinates>"
        "</Annotation></Annotations></ASAP_Annotations>"
    )


def bomb(depth: int) -> str:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "ha"}">' for n in range(depth))
    return f"<!DOCTYPE a [{entities}]>"


def at(x: str) -> str:
    return asap(f'<Coordinate Order="0" X="{x}" Y="0"/>')


REFUSED_XML: dict[str, tuple[str | bytes, str]] = {
    "nothing in it": (b"", "is empty"),
    "blanks": (b" \n", "not XML"),
    "random bytes": (bytes(range(256)), "not XML"),
    "NUL in a name": (asap(attributes='Name="A\0" Type="Polygon"'), "not XML"),
    "NUL as a reference": (asap(attributes='Name="A&#0;" Type="Polygon"'), "not XML"),
    "a bell in a name": (asap(attributes='Name="A\x07" Type="Polygon"'), "not XML"),
    "not UTF-8": (asap(attributes='Name="\xe4" Type="Polygon"').encode("latin-1"), "not XML"),
    "an unknown encoding": (asap(before='<?xml version="1.0" encoding="klingon"?>'), "unknown encoding"),
    "an encoding that is none": (asap(before='<?xml version="1.0" encoding="zip"?>'), "not XML"),
    "an encoding of many bytes": (asap(before='<?xml version="1.0" encoding="gbk"?>'), "multi-byte"),
    "entities that laugh": (asap(before=bomb(12), attributes='Name="&e11;" Type="Polygon"'), "<!DOCTYPE>"),
    "entities, quadratic": (asap(before=f'<!DOCTYPE a [<!ENTITY x "{"a" * 9**5}">]>'), "<!DOCTYPE>"),
    "a document type alone": (asap(before="<!DOCTYPE ASAP_Annotations>"), "<!DOCTYPE>"),
    "a million elements deep": (b"<a>" * 10**6, "not XML"),
    "a million deep and closed": (b"<a>" * 10**6 + b"</a>" * 10**6, "its root is <a>"),
    "a root of a megabyte": (b"<" + b"a" * 2**20 + b"/>", "its root is <aaaa"),
    "an attribute twice": (asap(attributes='Name="A" Name="B"'), "duplicate attribute"),
    "two documents": (asap() + asap(), "junk after document element"),
    "HTML": ("<html><body>Not found</body></html>", "its root is <html>"),
    "another namespace": ('<ASAP_Annotations xmlns="urn:x"/>', "its root is <{urn:x}ASAP_Annotations>"),
    "a type of a megabyte": (asap(attributes=f'Type="{"x" * 2**20}"'), "is unknown"),
    "a group of two lines": (asap(attributes='Type="Polygon" PartOfGroup="a&#10;b"'), "control characters"),
    "holes only": (asap(attributes='Type="Polygon" PartOfGroup="Exclusion"'), "outlines holes only"),
    "an underscore in a number": (at("1_0"), "X of a coordinate is '1_0'"),
    "infinity": (at("inf"), "X of a coordinate is 'inf'"),
    "not a number": (at("NaN"), "X of a coordinate is 'NaN'"),
    "beyond floats": (at("1e400"), "X of a coordinate is '1e400'"),
    "beyond slides": (at("-1000000001"), "within a billion"),
    "a hundred thousand digits": (at("9" * 10**5), "X of a coordinate is '999"),
    "hexadecimal": (at("0x10"), "X of a coordinate is '0x10'"),
    "lines in a number": (at("1&#10;2"), r"X of a coordinate is '1\n2'"),
    "Order of an octillion": (asap('<Coordinate Order="1e27" X="0" Y="0"/>'), "Order of a coordinate is '1e27'"),
    "Order by halves": (asap('<Coordinate Order="0.5" X="0" Y="0"/>'), "Order '0.5' is not whole"),
}  # fmt: skip

REFUSED_GEOJSON: dict[str, tuple[str | bytes, str]] = {
    "nothing in it": (b"", "is empty"),
    "a byte order mark alone": (b"\xef\xbb\xbf", "not JSON"),
    "not UTF-8": (b'["\xff\xff"]', "not JSON"),
    "half of UTF-16": ("[]".encode("utf-16")[:-1], "not JSON"),
    "NUL": (b"\0\0\0\0", "not JSON"),
    "brackets, a million": ("[" * 10**6, "not JSON"),
    "brackets, a million, closed": ("[" * 10**6 + "]" * 10**6, "not JSON"),
    "objects in objects": ('{"a":' * 10**5, "not JSON"),
    "coordinates 900 deep": (polygon("[" * 900 + "]" * 900), "is no coordinate"),
    "coordinates 5 deep": (polygon(f"[[{SQUARE}]]"), "is no coordinate"),
    "parents 900 deep": (
        polygon(f"[{SQUARE}]", '{"classification":' + '{"name":3,"parentClass":' * 900 + "null" + "}" * 901),
        "its classification has no name",
    ),
    "infinity": (polygon("[[[0,0],[Infinity,0],[8,8]]]"), "is no coordinate"),
    "beyond floats": (polygon("[[[0,0],[1e400,0],[8,8]]]"), "is no coordinate"),
    "beyond slides": (polygon("[[[0,0],[1e300,0],[8,8]]]"), "within a billion"),
    "a number of a hundred thousand digits": (polygon(f"[[[0,0],[{'9' * 10**5},0],[8,8]]]"), "is no coordinate"),
    "numbers as text": (polygon('[[["0","0"],["8","0"],["8","8"]]]'), "['0', '0'] is no coordinate"),
    "one of two numbers": (polygon("[[[0],[8,0],[8,8]]]"), "[0.0] is no coordinate"),
    "truth for a number": (polygon("[[[0,0],[true,0],[8,8]]]"), "[True, 0.0] is no coordinate"),
    "nothing for a number": (polygon("[[[0,0],[null,0],[8,8]]]"), "[None, 0.0] is no coordinate"),
    "an object for a ring": (polygon("[{}]"), "{} is not a list of coordinates"),
    "text for rings": (polygon('"' + "x" * 2**20 + '"'), "is not a list of outlines"),
    "a ring of a million words": (polygon("[[" + ",".join(['"x"'] * 10**6) + "]]"), "'x' is no coordinate"),
    "no ring": (feature('{"type":"MultiPolygon","coordinates":[[]]}'), "a polygon without an outline"),
    "a geometry of no type": (feature("{}"), "its geometry has no type"),
    "a class of two lines": (polygon(f"[{SQUARE}]", r'{"classification":{"name":"a\nb"}}'), "control characters"),
    "a class with NUL": (polygon(f"[{SQUARE}]", r'{"classification":"a\u0000"}'), "control characters"),
    "a class with half a character": (
        polygon(f"[{SQUARE}]", r'{"classification":{"name":"\ud800"}}'),
        "control characters",
    ),
    "a class that is a list": (polygon(f"[{SQUARE}]", '{"classification":{"name":["a"]}}'), "has no name"),
    "a name that is a list": (polygon(f"[{SQUARE}]", '{"name":[[[["a"]]]]}'), "its name is [[[...]]]"),
    "a name with half a character": (polygon(f"[{SQUARE}]", r'{"name":"\udfff"}'), r"its name is '\udfff'"),
    "measurements by lists": (polygon(f"[{SQUARE}]", '{"measurements":[{"name":[]}]}'), "are no table"),
    "children that are no list": (polygon(f"[{SQUARE}]", '{"childObjects":{}}'), "childObjects is not a list"),
    "a child that is a number": (polygon(f"[{SQUARE}]", '{"childObjects":[3]}'), "child 1: not a feature"),
    "a number": ("1" * 10**5, "not GeoJSON"),
    "two documents": ("[][]", "not JSON"),
}  # fmt: skip

READ: dict[str, tuple[str, float, list[str]]] = {
    "closed twice": (polygon("[[[0,0],[8,0],[8,8],[0,8],[0,0],[0,0]]]"), 64, []),
    "every point twice": (polygon("[[[0,0],[0,0],[8,0],[8,0],[8,8],[8,8],[0,8]]]"), 64, []),
    "a bow tie": (polygon("[[[0,0],[8,8],[8,0],[0,8]]]"), 32, []),
    "a hole outside": (polygon(f"[{SQUARE},[[20,20],[30,20],[30,30]]]"), 64, []),
    "a hole twice": (polygon(f"[{SQUARE},[[2,2],[6,2],[6,6],[2,6]],[[2,2],[6,2],[6,6],[2,6]]]"), 48, []),
    "a hole larger than it": (polygon(f"[{SQUARE},[[-9,-9],[20,-9],[20,20],[-9,20]]]"), 0, []),
    "a flat hole": (polygon(f"[{SQUARE},[[2,2],[6,2],[4,2]]]"), 64, ["1 outline without area"]),
    "a flat outline": (polygon("[[[0,0],[8,0],[4,0]]]"), 0, ["1 outline without area"]),
    "there and back": (polygon("[[[0,0],[8,0],[8,8],[8,0],[3,0],[3,5],[3,0]]]"), 0, ["1 outline without area"]),
    "no point": (polygon("[[]]"), 0, ["1 outline without area"]),
    "with heights": (polygon("[[[0,0,5],[8,0,5],[8,8],[0,8,1]]]"), 64, []),
    "children": (
        polygon(f"[{SQUARE}]", '{"childObjects":[' + polygon("[[[20,20],[28,20],[28,28]]]")[1:-1] + "]}"), 96, [],
    ),
    "parts": (
        feature(f'{{"type":"MultiPolygon","coordinates":[[{SQUARE}],[[[0,0],[1,1]]],[[[20,0],[28,0],[28,8]]]]}}'),
        96,
        ["1 outline without area"],
    ),
    "other shapes": (
        feature("null")[:-1] + ","
        + feature('{"type":"GeometryCollection","geometries":[]}')[1:-1] + ","
        + feature('{"type":"LineString","coordinates":[[0,0],[1,1]]}')[1:-1] + ","
        + feature(f'{{"type":"{"x" * 10**5}"}}')[1:-1] + ","
        + polygon(f"[{SQUARE}]")[1:],
        64,
        ["2 features without geometry", "of type LineString", "1 shape of unknown type"],
    ),
}  # fmt: skip
