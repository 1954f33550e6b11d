"""Leica's SCN: a TIFF whose first description is XML that places its pages on a canvas."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from histo_monai.slides.tiff.tables import Page

NAMESPACE = "http://www.leica-microsystems.com/scn/2010/10/01"
_IN = {"scn": NAMESPACE}
_OBJECTIVE = "scn:scanSettings/scn:objectiveSettings/scn:objective"


def is_leica(pages: Sequence[Page]) -> bool:
    """Whether a TIFF is an SCN, whatever its suffix."""
    return bool(pages) and NAMESPACE in pages[0].description


def why_not_leica(pages: Sequence[Page]) -> str | None:
    """Why an SCN cannot be opened, or None: OpenSlide ends the process on missing metadata.

    OpenSlide needs a page of plane 0, and for brightfield images other than macros the name of the objective.
    """
    try:
        root = ElementTree.fromstring(pages[0].description.partition("\0")[0])
    except (ElementTree.ParseError, ValueError):
        return None  # OpenSlide refuses it.
    for number, image in enumerate(root.findall("scn:collection/scn:image", _IN), start=1):
        planes = [page.get("z", "0") for page in image.findall("scn:pixels/scn:dimension", _IN)]
        if "0" not in planes:
            return f"its description names no page of plane 0 for image {number}; export it again"
        view = image.find("scn:view", _IN)
        is_macro = view is not None and {view.get("offsetX"), view.get("offsetY")} == {"0"}
        light = image.findtext("scn:scanSettings/scn:illuminationSettings/scn:illuminationSource", "", _IN)
        if light == "brightfield" and not is_macro and not image.findtext(_OBJECTIVE, "", _IN):
            return f"its description names no objective for image {number}; export it again"
    return None
