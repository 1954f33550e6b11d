"""µm per pixel and objective power in the descriptions of TIFF pages, by Aperio, Philips and OME."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from histo_monai.slides.tiff.tables import Page

_ASSOCIATED = re.compile(r"(?im)^\s*(macro|label|thumbnail|overview|barcode)\b")
"""Start of an associated picture's name, or of a line of its description."""

_APERIO_MACRO = 9
"""NewSubfileType of Aperio's macro."""

_UM = {
    **{"ym": 1e-18, "zm": 1e-15, "am": 1e-12, "fm": 1e-9, "pm": 1e-6, "nm": 1e-3, "\xb5m": 1.0, "mm": 1e3},
    **{"cm": 1e4, "dm": 1e5, "m": 1e6, "dam": 1e7, "hm": 1e8, "km": 1e9, "Mm": 1e12, "Gm": 1e15, "Tm": 1e18},
    **{"Pm": 1e21, "Em": 1e24, "Zm": 1e27, "Ym": 1e30, "\xc5": 1e-4},
    **{"thou": 25.4, "li": 25_400 / 12, "in": 25_400.0, "ft": 304_800.0, "yd": 914_400.0, "mi": 1.609344e9},
    **{"ua": 1.495978707e17, "ly": 9.4607304725808e21, "pc": 3.0856775814914e22, "pt": 25_400 / 72},
    **{"\u03bcm": 1.0, "um": 1.0, "micron": 1.0, "microns": 1.0},
}
"""µm per unit of length in OME's schema, then common other spellings of µm."""


@dataclass(frozen=True, slots=True)
class OmeImage:
    """An image of OME-XML: size in pixels, µm per pixel and objective power, or None where not stated."""

    name: str
    size_yx: tuple[int, int]
    mpp_yx: tuple[float, float] | None
    power: float | None


class _WithoutDoctype(ElementTree.TreeBuilder):
    """Refuses a document type, where a file can define entities that grow into gigabytes or read other files."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise ValueError("it has a <!DOCTYPE>")


def parse_xml(text: str, root: str) -> ElementTree.Element | None:
    """The root element of an XML text, without namespaces; None for other texts or another root."""
    text = text.strip("\0 \r\n\t\ufeff")
    if not text.startswith("<") or root not in text:
        return None
    try:
        # Without the declaration: the text is already decoded.
        text = re.sub(r"^<\?xml[^>]*\?>", "", text)
        element = ElementTree.fromstring(text, ElementTree.XMLParser(target=_WithoutDoctype()))
    except (ElementTree.ParseError, ValueError):
        return None
    for one in element.iter():
        one.tag = one.tag.rpartition("}")[2]
    return element if element.tag == root else None


def aperio_mpp(page: Page) -> float | None:
    """µm per pixel in Aperio's description (MPP), or None."""
    if not page.description.startswith("Aperio"):
        return None
    match = re.search(r"\|\s*MPP\s*=\s*([0-9.,]+)", page.description)
    return positive_number(match.group(1)) if match else None


def aperio_power(page: Page) -> float | None:
    """Objective power in Aperio's description (AppMag), or None."""
    match = re.search(r"\|\s*AppMag\s*=\s*([0-9.]+)", page.description)
    return positive_number(match.group(1)) if match else None


def philips_mpp_yx(page: Page) -> tuple[float, float] | None:
    """The finest spacing in the XML of Philips, µm per pixel down and across: level 0's."""
    root = parse_xml(page.description, "DataObject")
    if root is None:
        return None
    slides = [one for one in root.iter("DataObject") if _attribute(one, "PIM_DP_IMAGE_TYPE") == "WSI"] or [
        root
    ]
    texts = [
        one.text or "" for one in slides[0].iter("Attribute") if one.get("Name") == "DICOM_PIXEL_SPACING"
    ]
    spacings = []
    for text in texts:
        values = [positive_number(value) for value in re.findall(r"[^\s\"'\\]+", text)]
        if len(values) == 2 and values[0] and values[1]:
            spacings.append((values[0] * 1e3, values[1] * 1e3))
    return min(spacings, default=None)


def ome_images(pages: Sequence[Page]) -> list[OmeImage]:
    """The images of a file's OME-XML, which its first page holds; empty without it."""
    root = parse_xml(pages[0].description, "OME") if pages else None
    return [] if root is None else list(_ome_images(root))


def _ome_images(root: ElementTree.Element) -> Iterator[OmeImage]:
    powers = {
        one.get("ID"): positive_number(one.get("NominalMagnification", one.get("CalibratedMagnification")))
        for one in root.iter("Objective")
    }
    for image in root.iter("Image"):
        pixels, settings = image.find("Pixels"), image.find("ObjectiveSettings")
        if pixels is None:
            continue
        height, width = (positive_number(pixels.get(f"Size{axis}")) for axis in "YX")
        lengths = [positive_number(pixels.get(f"PhysicalSize{axis}")) or 0.0 for axis in "YX"]
        units = [_UM.get(pixels.get(f"PhysicalSize{axis}Unit", "um").strip(), 0.0) for axis in "YX"]
        mpps = [length * um for length, um in zip(lengths, units, strict=True)]
        only = next(iter(powers.values())) if len(powers) == 1 else None
        yield OmeImage(
            image.get("Name", ""),
            (int(height or 0), int(width or 0)),
            (mpps[0], mpps[1]) if min(mpps) > 0 else None,
            only if settings is None else powers.get(settings.get("ID")),
        )


def ome_image_of(page: Page, images: Sequence[OmeImage]) -> OmeImage | None:
    """The OME image of a page's size, preferring slides to macros and labels."""
    same = [image for image in images if image.size_yx == page.size_yx]
    slides = [image for image in same if not _ASSOCIATED.match(image.name)]
    return next(iter(slides or same), None)


def is_associated(page: Page, images: Sequence[OmeImage]) -> bool:
    """Whether a page states that it is a macro, a label or a thumbnail."""
    if page.subfile_type == _APERIO_MACRO:
        return True
    image = ome_image_of(page, images)
    if image is not None and _ASSOCIATED.match(image.name):
        return True
    return not page.description.lstrip().startswith("<") and bool(_ASSOCIATED.search(page.description))


def _attribute(parent: ElementTree.Element, name: str) -> str | None:
    return next((one.text for one in parent.findall("Attribute") if one.get("Name") == name), None)


def positive_number(text: str | None) -> float | None:
    """A positive number with a decimal point or comma, or None."""
    try:
        value = float((text or "").replace(",", "."))
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None
