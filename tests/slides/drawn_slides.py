"""Slides drawn at random, and what is true of them: every pixel is a closed form of its place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.slides.drawn_tiff import DEFLATE, JPEG, JPEG2000, LZW, NONE, DrawnPage, write_tiff

KINDS = ("generic", "generic", "no subfile types", "aperio", "ome", "ome", "philips")
_LEAST_SURE_PX = 32
LEAST_SIDE_PX, LEAST_ODD_SIDE_PX = 8, 40
_STEPS = (2, 2, 2, 3, 4, 1.5, 2.7)
_UNITS = {"\xb5m": 1.0, "nm": 1e-3, "mm": 1e3, "cm": 1e4, "m": 1e6, "\xc5": 1e-4, "in": 25_400.0}


@dataclass(frozen=True)
class Waves:
    """A picture without end: three plane waves a channel, each longer than 70 px.

    Attributes:
        by: Radians per pixel down, shape (3 channels, 3 waves).
        bx: Radians per pixel across.
        phase: Radians at the corner of the slide.
    """

    by: NDArray[np.float64]
    bx: NDArray[np.float64]
    phase: NDArray[np.float64]

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Waves:
        angle, length = rng.uniform(0, 2 * np.pi, (3, 3)), rng.uniform(70, 220, (3, 3))
        turn = 2 * np.pi / length
        return cls(turn * np.sin(angle), turn * np.cos(angle), rng.uniform(0, 2 * np.pi, (3, 3)))

    def means(
        self, ys: NDArray[np.float64], xs: NDArray[np.float64], size_yx: tuple[float, float]
    ) -> NDArray[np.float64]:
        """Means over fields of a size around the middles ys x xs: the wave at the middle, times sin(t) / t."""
        weaker = np.sinc(self.by * size_yx[0] / 2 / np.pi) * np.sinc(self.bx * size_yx[1] / 2 / np.pi)
        down = np.exp(1j * (self.by[..., None] * ys + self.phase[..., None])) * (38 * weaker)[..., None]
        across = np.exp(1j * self.bx[..., None] * xs)
        return 128 + np.moveaxis((np.swapaxes(down, 1, 2) @ across).real, 0, -1)

    def picture(self, size_yx: tuple[int, int], pitch_yx: tuple[float, float]) -> NDArray[np.uint8]:
        """Pixels of a level whose pixels are so many of level 0 apart."""
        ys, xs = ((np.arange(size) + 0.5) * pitch for size, pitch in zip(size_yx, pitch_yx, strict=True))
        return np.rint(self.means(ys, xs, pitch_yx)).astype(np.uint8)


@dataclass(frozen=True)
class DrawnSlide:
    """A file, and the truth.

    Attributes:
        path: The file.
        kind: One of `KINDS`.
        waves: What it shows.
        size_yx: Height and width of level 0.
        mpp: µm per pixel of level 0.
        power: Objective power, or None.
        downsamples: Of its levels, finest first.
        num_sure: Of those that are no handful of pixels, and not mostly padding: size and pixels show what they are.
        what: In a few words, for messages.
    """

    path: Path
    kind: str
    waves: Waves
    size_yx: tuple[int, int]
    mpp: float
    power: float | None
    downsamples: tuple[float, ...]
    num_sure: int
    what: str


def draw_slide(folder: Path, seed: int) -> DrawnSlide:
    """The slide of a seed."""
    rng = np.random.default_rng((43, seed))
    kind = KINDS[seed % len(KINDS)]
    waves = Waves.draw(rng)
    tile_px = int(rng.choice([64, 96, 128, 240]))
    codecs = (NONE, DEFLATE, JPEG, JPEG, JPEG2000, LZW)
    if tile_px == 240:  # OpenSlide's libtiff refuses uncompressed tiles of that size.
        codecs = codecs[1:]
    codec = int(rng.choice((JPEG, JPEG, JPEG2000) if kind == "aperio" else codecs))
    predictor = 2 if codec == DEFLATE and rng.random() < 0.4 else 1
    coding = {"tile_px": tile_px, "compression": codec, "predictor": predictor}
    size_yx = (int(rng.integers(260, 800)), int(rng.integers(260, 800)))
    if kind == "philips":  # Pages of whole tiles.
        size_yx = (-(-size_yx[0] // tile_px) * tile_px, -(-size_yx[1] // tile_px) * tile_px)
    power = float(rng.choice([10, 20, 40]))
    mpp = round(float(10 / power * rng.uniform(0.9, 1.1)), 4)
    levels, downsamples = _draw_levels(rng, kind, waves, size_yx, coding)
    decoys = _draw_decoys(rng, kind, size_yx, coding)
    pages = _arranged(rng, kind, levels, decoys, mpp, power)
    suffix = ".svs" if kind == "aperio" else str(rng.choice([".tif", ".tiff", ".tif", ".ptif"]))
    path = folder / f"{seed}{suffix}"
    is_big, order = bool(rng.random() < 0.3), ">" if rng.random() < 0.15 else "<"
    write_tiff(path, pages, big=is_big, order=order)
    has_power = kind == "aperio" or (kind == "ome" and "NominalMagnification" in pages[0].description)
    coded = f"codec {codec}, predictor {predictor}, tiles {tile_px}"
    what = f"{kind}, {coded}, 1:{downsamples}, {len(decoys)} decoys, {suffix}"
    parts = [
        (size / downsample, part)
        for page, downsample in zip(levels, downsamples, strict=True)
        for size, part in [min(zip(size_yx, page.pixels.shape[:2], strict=True))]
    ]
    num_sure = sum(content >= _LEAST_SURE_PX and part < 1.1 * content for content, part in parts)
    return DrawnSlide(
        path, kind, waves, size_yx, mpp, power if has_power else None, downsamples, num_sure, what
    )


def _draw_levels(
    rng: np.random.Generator, kind: str, waves: Waves, size_yx: tuple[int, int], coding: dict[str, int]
) -> tuple[list[DrawnPage], tuple[float, ...]]:
    """Pages, finest first, and their downsamples."""
    pages, downsamples = [DrawnPage(waves.picture(size_yx, (1, 1)), **coding)], [1.0]
    rounding = (np.floor, np.ceil, np.round)[int(rng.integers(3))]
    for _ in range(int(rng.integers(0, 6))):
        downsample = downsamples[-1] * float(rng.choice((2,) if kind == "philips" else _STEPS))
        level_yx = tuple(int(rounding(size / downsample)) for size in size_yx)
        is_whole = downsample == round(downsample)
        if min(level_yx) < (LEAST_SIDE_PX if is_whole else LEAST_ODD_SIDE_PX):
            break
        if kind == "philips":
            tile_px = coding["tile_px"]
            level_yx = tuple(-(-int(np.ceil(size / downsample)) // tile_px) * tile_px for size in size_yx)
        # Odd levels are stretched to their size; those of whole steps are cut or filled up.
        pitch_yx = tuple(
            downsample if is_whole else size / part for size, part in zip(size_yx, level_yx, strict=True)
        )
        pages.append(DrawnPage(waves.picture(level_yx, pitch_yx), **coding))
        downsamples.append(downsample if is_whole else max(size_yx) / max(level_yx))
    return pages, tuple(downsamples)


def _draw_decoys(
    rng: np.random.Generator, kind: str, size_yx: tuple[int, int], coding: dict[str, int]
) -> list[DrawnPage]:
    """Macros, labels and thumbnails of other aspects and other content, tiled and not; all smaller than the slide."""
    pages = []
    for _ in range(int(rng.integers(0, 4))):
        is_tiled = bool(rng.random() < 0.6)
        other = Waves.draw(rng)
        kind_of, subfile_type = [("macro", 9), ("label", 1), ("thumbnail", 1), ("", 1)][int(rng.integers(4))]
        if (
            rng.random() < 0.3
        ):  # The slide's aspect, and a whole-number part of its size: only the content differs.
            step = int(rng.choice([2, 3, 5]))
            shape = (size_yx[0] // step, size_yx[1] // step)
        else:
            ratio = float(rng.choice([0.3, 0.45, 2.4, 3.0])) * size_yx[1] / size_yx[0]
            height = int(rng.integers(60, 200))
            shape = (height, max(16, min(int(height * ratio), size_yx[0] * size_yx[1] // height // 2)))
        prefix = {"aperio": "Aperio Image Library v11\n", "philips": ""}.get(kind, "")
        text = kind_of.capitalize() if kind == "philips" else kind_of
        page = DrawnPage(
            other.picture(shape, (1, 1)), **{**coding, "tile_px": coding["tile_px"] if is_tiled else None}
        )
        if not is_tiled:
            page.compression, page.predictor = NONE, 1
        page.subfile_type = subfile_type
        page.description = prefix + text if text and rng.random() < 0.7 else prefix.strip()
        pages.append(page)
    return pages


def _arranged(
    rng: np.random.Generator,
    kind: str,
    levels: list[DrawnPage],
    decoys: list[DrawnPage],
    mpp: float,
    power: float,
) -> list[DrawnPage]:
    """Pages in the order of the file, with what this kind of file states of them."""
    for number, page in enumerate(levels):
        page.subfile_type = int(number > 0)
    if kind in ("generic", "no subfile types"):
        unit = int(rng.choice([2, 3]))
        for page in levels:
            page.mpp, page.unit = mpp * levels[0].pixels.shape[0] / page.pixels.shape[0], unit
            if kind == "no subfile types":
                page.subfile_type = [None, 0][unit - 2]
        pages = [*levels, *decoys]
        return [pages[number] for number in rng.permutation(len(pages))]
    if kind == "aperio":
        height, width = levels[0].pixels.shape[:2]
        stated = (
            f"|AppMag = {power:g}|MPP = {mpp:g}"
            if rng.random() < 0.9
            else f"|MPP = {mpp:g}|AppMag = {power:g}"
        )
        levels[0].description = f"Aperio Image Library v11.2.1\n{width}x{height} JPEG/RGB Q=70{stated}"
        for page in levels[1:]:
            page.description = "Aperio Image Library v11.2.1\nlevel"
            page.subfile_type = 0
        others = [*levels[1:], *decoys]
        return [levels[0], *(others[number] for number in rng.permutation(len(others)))]
    if kind == "philips":
        levels[0].software, levels[0].description = "Philips DP v1.0", philips_xml(mpp, len(levels))
        for number, page in enumerate(levels[1:], 1):
            page.description = f"level={number} mag={power / 2**number:g} quality=90"
        return [*levels, *decoys]
    levels[0].sub_pages = levels[1:]
    pages = [*decoys, levels[0]] if rng.random() < 0.6 else [levels[0], *decoys]
    for page in pages:
        page.subfile_type = 0
        page.description = ""
    unit = list(_UNITS)[int(rng.integers(len(_UNITS)))]
    pages[0].description = ome_xml(
        [("slide 1" if page is levels[0] else "macro image", page.pixels.shape[:2]) for page in pages],
        mpp / _UNITS[unit],
        unit,
        power if rng.random() < 0.7 else None,
    )
    return pages


def philips_xml(mpp: float, num_levels: int, *, with_levels: bool = True) -> str:
    """The description of a Philips TIFF."""

    def attribute(name: str, value: str, kind: str = "IString") -> str:
        return f'<Attribute Name="{name}" Group="0x0028" Element="0x0030" PMSVR="{kind}">{value}</Attribute>'

    def spacing(mpp: float) -> str:
        return attribute(
            "DICOM_PIXEL_SPACING",
            f"&quot;{mpp / 1000:.9f}&quot; &quot;{mpp / 1000:.9f}&quot;",
            "IDoubleArray",
        )

    def array(name: str, inner: str) -> str:
        return attribute(name, f"<Array>{inner}</Array>", "IDataObjectArray")

    representations = "".join(
        f'<DataObject ObjectType="PixelDataRepresentation">{spacing(mpp * 2**level)}'
        f"{attribute('PIIM_DP_PIXEL_DATA_REPRESENTATION_NUMBER', str(level), 'IUInt16')}</DataObject>"
        for level in range(num_levels)
    )
    inner = attribute("PIM_DP_IMAGE_TYPE", "WSI") + spacing(mpp)
    inner += array("PIIM_PIXEL_DATA_REPRESENTATION_SEQUENCE", representations) if with_levels else ""
    image = f'<DataObject ObjectType="DPScannedImage">{inner}</DataObject>'
    return (
        '<?xml version="1.0" encoding="UTF-8" ?><DataObject ObjectType="DPUfsImport">'
        f"{attribute('DICOM_MANUFACTURER', 'Hamamatsu')}{array('PIM_DP_SCANNED_IMAGES', image)}</DataObject>"
    )


def ome_xml(images: list[tuple[str, tuple[int, ...]]], length: float, unit: str, power: float | None) -> str:
    """The description of an OME-TIFF: names and sizes of its images; the length of a pixel is that of all slides."""
    objective = ""
    if power is not None:
        lens = f'<Objective ID="Objective:0" NominalMagnification="{power:g}"/>'
        objective = f'<Instrument ID="Instrument:0">{lens}</Instrument>'
    elements = []
    for number, (name, size_yx) in enumerate(images):
        factor = 30 if name.startswith("macro") else 1
        sizes = f'SizeX="{size_yx[1]}" SizeY="{size_yx[0]}" SizeC="3" SizeZ="1" SizeT="1"'
        lengths = "".join(
            f' PhysicalSize{axis}="{length * factor:.10g}" PhysicalSize{axis}Unit="{unit}"' for axis in "XY"
        )
        settings = '<ObjectiveSettings ID="Objective:0"/>' if power is not None else ""
        elements.append(
            f'<Image ID="Image:{number}" Name="{name}">{settings}<Pixels ID="Pixels:{number}" Type="uint8" '
            f'DimensionOrder="XYCZT" {sizes}{lengths}><TiffData IFD="{number}"/></Pixels></Image>'
        )
    return (
        '<?xml version="1.0" encoding="UTF-8"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06">'
        f"{objective}{''.join(elements)}</OME>"
    )
