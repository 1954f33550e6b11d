"""Leica SCN: a TIFF whose first description is XML that places its pages on a canvas."""

from __future__ import annotations

from collections.abc import Sequence

from histo_monai.slides.tiff.descriptions import parse_xml
from histo_monai.slides.tiff.tables import Page

NAMESPACE = "http://www.leica-microsystems.com/scn/2010/10/01"
_OBJECTIVE = "scanSettings/objectiveSettings/objective"
_LIGHT = "scanSettings/illuminationSettings/illuminationSource"


def is_leica(pages: Sequence[Page]) -> bool:
    """Whether a TIFF is an SCN, regardless of its suffix."""
    return bool(pages) and NAMESPACE in pages[0].description


def why_not_leica(pages: Sequence[Page]) -> str | None:
    """The reason why an SCN cannot be opened, or None: OpenSlide ends the process on missing metadata."""
    description = pages[0].description.partition("\0")[0]
    if "<!DOCTYPE" in description:
        return "its description has a <!DOCTYPE>. Fix: export it again."
    root = parse_xml(description, "scn")
    if root is None:
        return None  # OpenSlide refuses it.
    for number, image in enumerate(root.findall("collection/image"), start=1):
        planes = [page.get("z", "0") for page in image.findall("pixels/dimension")]
        if "0" not in planes:
            return f"its description names no page of plane 0 for image {number}. Fix: export it again."
        view = image.find("view")
        is_macro = view is not None and {view.get("offsetX"), view.get("offsetY")} == {"0"}
        light = image.findtext(_LIGHT, "")
        if light == "brightfield" and not is_macro and not image.findtext(_OBJECTIVE, ""):
            return f"its description names no objective for image {number}. Fix: export it again."
    return None
