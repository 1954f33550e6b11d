"""Pages that are no levels, levels in any order, and texts that state what is not so."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator

import numpy as np
import tifffile

from histo_monai.slides import open_slide
from tests.hostile.case import ACCEPTED, EITHER, REFUSED, Case
from tests.hostile.kinds import tiff
from tests.hostile.project import OWN, replaced, slide_pixels, tissue, write_text
from tests.slides.drawn_slides import ome_xml, philips_xml
from tests.slides.drawn_tiff import DEFLATE, JPEG, LZW, NONE, DrawnPage, write_tiff

PAGES, STATED, SUBS = "pages of a slide", "what a slide states", "SubIFDs"
INDEX = ("index",)
VICTIM = OWN / "s1.tif"
NAMED = ("s1.tif",)
LEFT_OUT = "skipped as"
SIZE_YX = (512, 512)
_SUB_DIRECTORIES = 330

Change = Callable[[], object]


def _page(downsample: int = 1, **how: object) -> DrawnPage:
    pixels = np.ascontiguousarray(slide_pixels(1)[::downsample, ::downsample])
    return DrawnPage(pixels, **{"tile_px": 128, "mpp": 1.0 * downsample, **how})


def _write(*pages: DrawnPage, **how: object) -> Change:
    def change() -> None:
        VICTIM.unlink()
        write_tiff(VICTIM, list(pages), **how)

    return change


def _is(mpp: float = 1.0, downsamples: tuple[float, ...] = (1.0,)) -> Change:
    def check() -> None:
        with open_slide(VICTIM) as slide:
            assert slide.size_yx == SIZE_YX, slide.size_yx
            assert abs(slide.mpp - mpp) < 1e-3 * mpp, slide.mpp
            assert slide.level_downsamples == downsamples, slide.level_downsamples

    return check


def _macro(size_yx: tuple[int, int], **how: object) -> DrawnPage:
    return DrawnPage(tissue(9, max(size_yx))[: size_yx[0], : size_yx[1]], **{"tile_px": 64, **how})


def _page_cases() -> Iterator[Case]:
    for size_yx, subfile_type, place in itertools.product(
        ((90, 230), (300, 100), (200, 230), (100, 700)), (1, 9), (0, 1, 2)
    ):
        pages = [_page(subfile_type=0), _page(2, subfile_type=1)]
        pages.insert(place, _macro(size_yx, subfile_type=subfile_type))
        name = f"a tiled macro of {size_yx[1]} x {size_yx[0]} px and type {subfile_type} in place {place}"
        yield Case(PAGES, name, INDEX, _write(*pages), (LEFT_OUT,), ACCEPTED, check=_is(downsamples=(1, 2)))
    for step in (2, 3, 4, 8):
        side = 512 // step
        macro = DrawnPage(tissue(9, side), tile_px=64, subfile_type=1)
        name = f"a macro of the slide's aspect, a {step}th of its side"
        yield Case(
            PAGES, name, INDEX, _write(_page(subfile_type=0), macro), (LEFT_OUT,), ACCEPTED, check=_is()
        )
    for order, types in itertools.product(
        itertools.permutations((1, 2, 4)), ((0, 1, 1), (0, 0, 0), (None, None, None))
    ):
        type_of = dict(zip((1, 2, 4), types, strict=True))
        pages = [_page(downsample, subfile_type=type_of[downsample]) for downsample in order]
        name = f"pages in the order {order} of types {types}"
        yield Case(PAGES, name, INDEX, _write(*pages), (), ACCEPTED, check=_is(downsamples=(1, 2, 4)))
    for compression, predictor, is_big in itertools.product(
        (NONE, DEFLATE, JPEG, LZW), (1, 2), (False, True)
    ):
        if predictor == 1 or compression == DEFLATE:
            page = _page(compression=compression, predictor=predictor)
            name = f"codec {compression}, predictor {predictor}, {'BigTIFF' if is_big else 'TIFF'}"
            yield Case(PAGES, name, INDEX, _write(page, big=is_big), (), ACCEPTED, check=_is())
    for compression in (NONE, DEFLATE, LZW):
        page = _page(compression=compression, is_reversed=True)
        yield Case(
            PAGES, f"bits in reverse, codec {compression}", INDEX, _write(page), (), ACCEPTED, check=_is()
        )
    for dtype in ("float16", "float32", "float64", "int8", "int16", "int32", "uint32"):
        yield Case(PAGES, f"samples of {dtype}", INDEX, _samples(dtype), (*NAMED, "save it as 8-bit"))
    for shape, name in (((16, 2**16), "wide"), ((2**16, 16), "high")):
        yield Case(PAGES, f"one tile 65,536 px {name}", INDEX, _one_tile(shape), NAMED)
    for has_folder in (False, True):
        name = f"a lone .mrxs, {'an empty folder' if has_folder else 'no folder'} beside it"
        yield Case(PAGES, name, INDEX, _lone_mrxs(has_folder), ("s1.mrxs", "folder s1"))


def _samples(dtype: str) -> Change:
    def change() -> None:
        VICTIM.unlink()
        pixels = slide_pixels(1).astype(dtype)
        tifffile.imwrite(VICTIM, pixels, tile=(128, 128), photometric="rgb", metadata=None)

    return change


def _one_tile(shape: tuple[int, int]) -> Change:
    def change() -> None:
        VICTIM.unlink()
        pixels = np.full((*shape, 3), 200, np.uint8)
        tifffile.imwrite(VICTIM, pixels, tile=shape, photometric="rgb", metadata=None)

    return change


def _lone_mrxs(has_folder: bool) -> Change:
    def change() -> None:
        VICTIM.unlink()
        write_text(OWN / "s1.mrxs", b"\xff\xd8\xff\xe0" + bytes(200))
        if has_folder:
            (OWN / "s1").mkdir()
        replaced(OWN / "slides.csv", "s1.tif", "s1.mrxs")()

    return change


OME_LENGTHS = {
    "µm": 1.0,
    "\u03bcm": 1.0,
    "nm": 1000.0,
    "mm": 1e-3,
    "cm": 1e-4,
    "m": 1e-6,
    "Å": 1e4,
    "in": 1 / 25_400,
}
ODD_LENGTHS = ("nan", "inf", "-1", "0", "1e400", "", "one", "1;2", "0x1")
APERIO = (
    ("MPP = 1", 2.0, "the TIFF tags: 2"),
    ("MPP = 1", 10.0, "10 times"),
    ("MPP = 1", 0.025, ""),
    ("MPP = 1|AppMag = 40", None, "40x"),
    ("MPP = 1|AppMag = 100", None, "10 times"),
    ("MPP = 1|AppMag = 1", None, "10 times"),
    ("MPP = 1|AppMag = nan", None, ""),
    ("MPP = 1|AppMag = 0", None, ""),
    ("MPP = 1,0|AppMag = 10", None, ""),
    ("MPP = nan|AppMag = 10", 1.0, ""),
)
LAUGHS = '<!DOCTYPE {root} [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'


def _stated_cases() -> Iterator[Case]:
    for unit, length in OME_LENGTHS.items():
        page = _page(mpp=None, description=ome_xml([("slide", SIZE_YX)], length, unit, 10))
        yield Case(STATED, f"OME in {unit!r}", INDEX, _write(page), (), ACCEPTED, check=_is(1.0))
    sound = ome_xml([("slide", SIZE_YX)], 1.0, "µm", None)
    odd = {f"OME of a length {length!r}": sound.replace('="1"', f'="{length}"') for length in ODD_LENGTHS}
    odd |= {
        "OME in parsecs": sound.replace('Unit="µm"', 'Unit="pc"'),
        "OME in no known unit": sound.replace('Unit="µm"', 'Unit="furlong"'),
        "OME cut off": sound[: len(sound) // 2],
        "OME with entities": sound.replace("<OME ", LAUGHS.format(root="OME") + "<OME ", 1),
        "OME of another size": sound.replace('SizeX="512"', 'SizeX="513"'),
        "OME without pixels": sound.replace("Pixels", "Pixel"),
        "OME nested 100,000 times": "<OME>" + "<a>" * 100_000,
        "Philips without a number": philips_xml(1.0, 1).replace("0.001000000", "x"),
        "Philips with one number": philips_xml(1.0, 1).replace(" &quot;0.001000000&quot;", ""),
        "Philips with entities": philips_xml(1.0, 1).replace(
            "?>", "?>" + LAUGHS.format(root="DataObject"), 1
        ),
        "Philips cut off": philips_xml(1.0, 1)[:-40],
        "Philips of negative spacing": philips_xml(1.0, 1).replace("0.001", "-0.001"),
    }
    for name, text in odd.items():
        yield Case(STATED, name, INDEX, _write(_page(mpp=None, description=text)), (*NAMED, "column mpp"))
    for num_levels, with_levels in itertools.product((1, 2), (True, False)):
        text = philips_xml(1.0, num_levels, with_levels=with_levels)
        pages = [_page(mpp=None, description=text, software="Philips DP", subfile_type=0)]
        pages += [_page(2, mpp=None, subfile_type=1)] * (num_levels - 1)
        name = f"Philips of {num_levels} levels, {'each' if with_levels else 'one'} stated"
        downsamples = (1.0, 2.0)[:num_levels]
        yield Case(STATED, name, INDEX, _write(*pages), (), ACCEPTED, check=_is(1.0, downsamples))
    for text, tag_mpp, mentions in APERIO:
        page = _page(description=f"Aperio a|{text}", mpp=tag_mpp)
        name = f"Aperio's {text!r} and tags of {tag_mpp}"
        yield Case(STATED, name, INDEX, _write(page), (mentions,) if mentions else (), ACCEPTED, check=_is())
    for mpp in ("20.5", "30", "64", "0.04"):
        yield Case(STATED, f"a manifest of {mpp} µm/px", INDEX, _manifest(mpp), ("slides.csv", "0.05 to 20"))


def _manifest(mpp: str) -> Change:
    def change() -> None:
        replaced(OWN / "slides.csv", "patient_id,label", "patient_id,mpp,label")()
        for label in ("normal", "tumor"):
            replaced(OWN / "slides.csv", f",{label}", f",,{label}", 9)()
        replaced(OWN / "slides.csv", "P1,,normal", f"P1,{mpp},normal")()

    return change


def _with_subs(values: int | None, count: int = 1) -> Change:
    """A slide of one SubIFD whose list of SubIFDs is another."""

    def change() -> None:
        _write(_page(sub_pages=[_page(2, subfile_type=1)]))()
        data = VICTIM.read_bytes()
        (first,) = struct.unpack_from("<I", data, 4)
        write_text(
            VICTIM, tiff.with_tag(data, _SUB_DIRECTORIES, first if values is None else values, count=count)
        )

    return change


def _sub_cases() -> Iterator[Case]:
    for compression, num in itertools.product((NONE, DEFLATE, JPEG, LZW), (1, 2, 3)):
        subs = [_page(2**step, compression=compression, subfile_type=1) for step in range(1, num + 1)]
        page = _page(compression=compression, sub_pages=subs)
        downsamples = tuple(float(2**step) for step in range(num + 1))
        name = f"{num} levels in SubIFDs, codec {compression}"
        yield Case(SUBS, name, INDEX, _write(page), (), ACCEPTED, check=_is(downsamples=downsamples))
    macro = _macro((100, 230), subfile_type=1)
    yield Case(
        SUBS, "a macro among SubIFDs", INDEX, _write(_page(sub_pages=[macro, _page(2)])), (LEFT_OUT,), ACCEPTED,
        check=_is(downsamples=(1, 2)),
    )  # fmt: skip
    behind = [_macro((100, 230), subfile_type=0, sub_pages=[_macro((50, 115))]), _page(sub_pages=[_page(2)])]
    yield Case(
        SUBS, "a macro with levels of its own first", INDEX, _write(*behind), (LEFT_OUT,), ACCEPTED,
        check=_is(downsamples=(1, 2)),
    )  # fmt: skip
    yield Case(SUBS, "SubIFDs beyond the end", INDEX, _with_subs(2**31), NAMED, REFUSED)
    yield Case(SUBS, "a SubIFD that is the header", INDEX, _with_subs(4), NAMED, EITHER)
    yield Case(SUBS, "a SubIFD that is its parent", INDEX, _with_subs(None), (), ACCEPTED, check=_is())
    yield Case(SUBS, "4 thousand million SubIFDs", INDEX, _with_subs(8, 2**32 - 1), NAMED, REFUSED)
    yield Case(SUBS, "no SubIFD", INDEX, _with_subs(0), (), ACCEPTED, check=_is())


def cases() -> Iterator[Case]:
    """All of the three kinds."""
    yield from _page_cases()
    yield from _stated_cases()
    yield from _sub_cases()
