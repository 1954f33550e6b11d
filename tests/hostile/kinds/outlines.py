"""Outlines of own slides, as tools leave them in their folder: `index` reads, counts or refuses."""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from tests.hostile.case import ACCEPTED, EITHER, REFUSED, Case
from tests.hostile.kinds.corners import corners
from tests.hostile.project import OWN, all_of, params_with, replaced, write_text

FILES, CONTENTS = "folders of outlines", "outlines of an index"
INDEX = ("index",)
DRAWN, PLACES = OWN / "annotations", OWN / "coordinates"
RING = [[96, 96], [288, 96], [288, 288], [96, 288], [96, 96]]
INNER = [[128, 128], [224, 128], [224, 224], [128, 224], [128, 128]]
ACUTE, GRAVE = "s\u00e9", "s\u00e8"

Odd = dict[str, tuple[Callable[[], object], int | None, tuple[str, ...]]]


def feature(geometry: Any, label: str | None = "tumor", **properties: Any) -> dict[str, Any]:
    classification = {} if label is None else {"classification": {"name": label}}
    return {"type": "Feature", "geometry": geometry, "properties": {**classification, **properties}}


def polygon(ring: Any = RING, *holes: Any) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": [ring, *holes]}


def collection(*features: Any) -> str:
    return json.dumps({"type": "FeatureCollection", "features": list(features)})


GOOD = collection(feature(polygon()))


def _xml(*annotations: str) -> str:
    return f"<ASAP_Annotations><Annotations>{''.join(annotations)}</Annotations></ASAP_Annotations>"


def _one(kind: str, *places: tuple[Any, Any], group: str = "tumor", name: str = "odd") -> str:
    points = "".join(f'<Coordinate Order="{i}" X="{x}" Y="{y}" />' for i, (x, y) in enumerate(places))
    about = f'Name="{name}" Type="{kind}" PartOfGroup="{group}"'
    return f"<Annotation {about}><Coordinates>{points}</Coordinates></Annotation>"


def file(name: str, content: str | bytes = "x") -> Callable[[], None]:
    return lambda: write_text(DRAWN / name, content)


def _beside_good(*changes: Callable[[], object]) -> Callable[[], None]:
    """Outlines of s0 that are as they should be, and more."""
    return all_of(file("s0.geojson", GOOD), *changes)


def squares(num: int | None = None, **of: int) -> Callable[[], None]:
    """Checks how many squares of annotations are of each class; by default, that all squares of RING are there."""

    def check() -> None:
        table = pd.read_csv("data/index/patches.csv", keep_default_na=False)
        drawn = table[table["patch_id"].str.contains("-(?:region|point)[0-9]")]
        counts = drawn["label"].value_counts().to_dict()
        assert num is None or len(drawn) == num, f"{counts}, not {num}"
        assert not of or counts == of, f"{counts}, not {of}"

    return check


def _as_folder(make: Callable[[Path], object], folder: Path) -> Callable[[], object]:
    return lambda: make(folder)


def _renamed_slide(name: str) -> Callable[[], None]:
    return replaced(OWN / "slides.csv", "s1,s1.tif", f"{name},s1.tif")


def _of_patches(name: str) -> Callable[[], None]:
    """patches.csv follows."""
    return replaced(OWN / "patches.csv", "\ns1,", f"\n{name},", 4)


def _accent(slide_form: str, file_form: str, folder: str) -> Callable[[], None]:
    slide_id, stem = (unicodedata.normalize(form, ACUTE) for form in (slide_form, file_form))
    write = corners() if folder == "coordinates" else (lambda path: write_text(path, GOOD))
    ending = "_patches.h5" if folder == "coordinates" else ".geojson"
    return all_of(
        _renamed_slide(slide_id), _of_patches(slide_id), lambda: write(OWN / folder / f"{stem}{ending}")
    )


NO_FOLDERS: dict[str, Callable[[Path], object]] = {
    "a file": lambda path: write_text(path, "x"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to nowhere": lambda path: path.symlink_to("elsewhere"),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a FIFO": lambda path: os.mkfifo(path),
    "a folder nobody may read": lambda path: path.mkdir(mode=0),
}

NOT_OUTLINES = {
    "Thumbs.db": b"\xd0\xcf\x11\xe0",
    "desktop.ini": b"[.ShellClassInfo]",
    "s1.geojson~": GOOD.encode(),
    "s1.geojson.bak": GOOD.encode(),
    "s1.xml.part": b"<",
    "#s1.xml#": b"<",
    "s1.json": GOOD.encode(),
    "s1.ndpa": b"<annotations/>",
    "s1.qpdata": bytes(64),
    "README": b"drawn by anna",
    "s1.geojson.gz": b"\x1f\x8b\x08\0",
    "s1\x1b[2J.txt": b"x",
    "s1\n.txt": b"x",
}

FOLDERS: Odd = {
    **{
        f"{what} where {folder.name} should be": (_as_folder(make, folder), REFUSED, (folder.name, "folder"))
        for folder in (DRAWN, PLACES)
        for what, make in NO_FOLDERS.items()
    },
    **{
        f"{name!r} beside outlines": (_beside_good(file(name, content)), ACCEPTED, ("1 file without the ending",))
        for name, content in NOT_OUTLINES.items()
    },
    "a thousand other files": (
        _beside_good(*[file(f"{i}.tmp") for i in range(1000)]), ACCEPTED, ("1000 files without", "995 more"),
    ),
    "what a Mac leaves": (
        _beside_good(file("._s1.geojson", b"\0\5\x16\7"), file(".DS_Store")), ACCEPTED, ()
    ),
    "a folder beside outlines": (
        _beside_good(lambda: (DRAWN / "old").mkdir()), ACCEPTED, ("without the ending", "'old'"),
    ),
    "a folder that is called as outlines": (
        _beside_good(lambda: (DRAWN / "s1.geojson").mkdir()), REFUSED, ("s1.geojson", "folder"),
    ),
    "outlines that are a link to themselves": (
        _beside_good(lambda: (DRAWN / "s1.xml").symlink_to("s1.xml")), REFUSED, ("s1.xml",),
    ),
    "outlines that are a FIFO": (_beside_good(lambda: os.mkfifo(DRAWN / "s1.xml")), REFUSED, ("s1.xml",)),
    "outlines of no slide": (_beside_good(file("s9.geojson", GOOD)), REFUSED, ("s9.geojson", "slides.csv")),
    "outlines of one slide twice": (_beside_good(file("s0.xml", _xml())), REFUSED, ("s0.xml", "s0.geojson")),
    "a suffix in capitals": (lambda: write_text(DRAWN / "s0.GeoJSON", GOOD), ACCEPTED, ()),
    "other files alone": (file("s0.json", GOOD), ACCEPTED, ("1 file without the ending", "'s0.json'")),
    "what was left out, and an error after it": (
        _beside_good(file("Thumbs.db"), file("s1.geojson", "{")), REFUSED, ("s1.geojson", "not JSON"),
    ),
    **{
        f"an accent, {slide} in slides.csv, {file} on disk, in {folder}": (_accent(slide, file, folder), ACCEPTED, ())
        for folder in ("annotations", "coordinates")
        for slide, file in (("NFC", "NFD"), ("NFD", "NFC"), ("NFC", "NFC"))
    },
    "an accent spelled both ways": (
        all_of(_accent("NFC", "NFD", "annotations"), file(f"{ACUTE}.geojson", GOOD)), REFUSED, ("second file",),
    ),
    "another accent": (
        all_of(_accent("NFC", "NFD", "annotations"), file(f"{GRAVE}.geojson", GOOD)), REFUSED, ("slides.csv",),
    ),
}  # fmt: skip

DOT, TWO = _one("Dot", (200, 100)), _one("PointSet", (200, 100), (300, 100))
RULER, NONE = _one("Measurement", (0, 0), (9, 9)), _one("None", (0, 0))
FLAT = _one("Polygon", (0, 0), (9, 9))
LAST = '{"classification": {"name": "tumor"}}'

CONTENT: dict[str, tuple[str, str | bytes, int | None, tuple[str, ...], int | None]] = {
    "a dot alone": (".xml", _xml(DOT), ACCEPTED, (), 1),
    "a point set alone": (".xml", _xml(TWO), ACCEPTED, (), 2),
    "dots of two groups": (".xml", _xml(DOT, _one("Dot", (400, 400), group="normal")), ACCEPTED, (), 2),
    "a dot without group": (".xml", _xml(_one("Dot", (9, 9), group="None")), ACCEPTED, ("have no class",), 0),
    "a dot of no place": (".xml", _xml(_one("Dot")), ACCEPTED, (), 0),
    "no annotation": (".xml", _xml(), ACCEPTED, ("1 file without annotation",), 0),
    "no list of annotations": (".xml", "<ASAP_Annotations/>", ACCEPTED, ("1 file without annotation",), 0),
    "a measurement alone": (".xml", _xml(RULER), ACCEPTED, ("1 annotation of type Measurement",), 0),
    "measurements beside dots": (".xml", _xml(RULER, DOT, RULER), ACCEPTED, ("2 annotations of type",), 1),
    "an annotation of type None": (".xml", _xml(NONE), ACCEPTED, ("1 annotation of type None",), 0),
    "an outline without area alone": (".xml", _xml(FLAT), ACCEPTED, ("1 outline without area",), 0),
    "an underscore in a number": (".xml", _xml(_one("Dot", ("1_0", 9))), REFUSED, ("'1_0'",), None),
    "an underscore in an order": (
        ".xml", _xml(DOT.replace('Order="0"', 'Order="1_0"')), REFUSED, ("Order", "'1_0'"), None,
    ),
    "Arabic digits": (".xml", _xml(_one("Dot", ("\u0661\u0662", 9))), REFUSED, ("X of a coordinate",), None),
    "wide digits": (".xml", _xml(_one("Dot", ("\uff11", 9))), REFUSED, ("X of a coordinate",), None),
    "a hexadecimal number": (".xml", _xml(_one("Dot", ("0x1f", 9))), REFUSED, ("'0x1f'",), None),
    "a number with a comma and a point": (".xml", _xml(_one("Dot", ("1,024.5", 9))), REFUSED, ("1,024.5",), None),
    "a number that is nan": (".xml", _xml(_one("Dot", ("nan", 9))), REFUSED, ("'nan'",), None),
    "dots off the slide": (".xml", _xml(_one("Dot", (9e4, 9e4))), REFUSED, ("another slide",), None),
    "no feature": (".geojson", collection(), ACCEPTED, ("1 file without annotation",), 0),
    "an empty list": (".geojson", "[]", ACCEPTED, ("1 file without annotation",), 0),
    "cells alone": (
        ".geojson",
        collection(*[
            feature(polygon([[x, 9], [x + 5, 9], [x, 14], [x, 9]]), objectType="cell",
                     nucleusGeometry=polygon([[x + 1, 10], [x + 2, 10], [x + 1, 11], [x + 1, 10]]))
            for x in range(0, 500, 7)
        ]),
        ACCEPTED, ("no place", "and 67 more"), 0,
    ),
    "cells without class": (
        ".geojson", collection(*[feature(polygon(INNER), None, objectType="cell")] * 9), ACCEPTED,
        ("9 regions or points have no class",), 0,
    ),
    "a null geometry": (".geojson", collection(feature(None)), ACCEPTED, ("1 feature without geometry",), 0),
    "a feature without its geometry": (
        ".geojson", f'[{{"type":"Feature","properties":{LAST}}}]', ACCEPTED, ("1 feature without geometry",), 0,
    ),
    "a null geometry with children": (
        ".geojson", collection(feature(None, childObjects=[feature(polygon())])), ACCEPTED,
        ("1 feature without geometry",), 36,
    ),
    "polygons of no ring": (
        ".geojson", collection(*[feature({"type": "Polygon", "coordinates": []})] * 3), ACCEPTED,
        ("3 features without geometry",), 0,
    ),
    "a collection of geometries": (
        ".geojson",
        collection(feature({"type": "GeometryCollection",
                              "geometries": [polygon(), {"type": "Point", "coordinates": [400, 400]}]})),
        ACCEPTED, (), 37,
    ),
    "a collection of nothing": (
        ".geojson", collection(feature({"type": "GeometryCollection", "geometries": []})), ACCEPTED,
        ("1 feature without geometry",), 0,
    ),
    "a collection without its list": (
        ".geojson", collection(feature({"type": "GeometryCollection"})), REFUSED, ("feature 1",), None,
    ),
    "a collection of a number": (
        ".geojson", collection(feature({"type": "GeometryCollection", "geometries": [7]})), REFUSED,
        ("feature 1",), None,
    ),
    "collections 400 deep": (
        ".geojson",
        '{"type":"GeometryCollection","geometries":[' * 400 + json.dumps(polygon()) + "]}" * 400,
        EITHER, (), None,
    ),
    "collections 100,000 deep": (
        ".geojson", '{"type":"GeometryCollection","geometries":[' * 10**5, REFUSED, ("not JSON",), None,
    ),
    "a polygon without a feature": (".geojson", json.dumps(polygon()), ACCEPTED, ("1 regions or points have no",), 0),
    "a type that is a list": (".geojson", '{"type":["Feature"]}', REFUSED, ("not GeoJSON",), None),
    "a line": (
        ".geojson", collection(feature({"type": "LineString", "coordinates": RING})), ACCEPTED,
        ("1 shape of type LineString",), 0,
    ),
}  # fmt: skip


def cases() -> Iterator[Case]:
    """Both kinds."""
    for name, (prepare, code, mentions) in FOLDERS.items():
        yield Case(FILES, name, INDEX, prepare, mentions, code=code)
    for name, (suffix, content, code, mentions, num) in CONTENT.items():
        prepare = all_of(file(f"s2{suffix}", content), params_with(labels__own__regions__num_per_region=99))
        named = mentions if code == ACCEPTED else (*mentions, f"s2{suffix}")
        yield Case(CONTENTS, f"{suffix[1:]}: {name}", INDEX, prepare, named, code=code, check=squares(num))
