"""Suggested squares -> one page to label them on, which works from disk and asks for nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import jinja2
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.tables.manifests import MISSING
from histo_monai.slides import Box, Slide
from histo_monai.slides.annotations.frames import MEMBER
from histo_monai.utils.escapes import in_script

FIELD = 3
"""Side of a picture in sides of its patch: the surroundings are shown."""
_PICTURE_PX, _SLIDE_PX = 384, 320
_QUALITY = 85


def square_pictures(slide: Slide, squares: pd.DataFrame, side_um: float) -> list[str]:
    """Squares of a slide with their surroundings, as data URLs.

    Args:
        squares: `y`, `x`, level-0 pixels.
        side_um: Side of a square, µm.
    """
    mpp = max(slide.mpp, FIELD * side_um / _PICTURE_PX)
    side_px = round(FIELD * side_um / mpp)
    centers = squares[["y", "x"]].to_numpy(float)
    patches = slide.read_many([Box((float(y), float(x)), side_px, mpp) for y, x in centers])
    return [_jpeg(patch.transpose(1, 2, 0)) for patch in patches]


def slide_picture(slide: Slide) -> str:
    """A whole slide in small, as a data URL."""
    return _jpeg(slide.thumbnail(slide.thumbnail_mpp(_SLIDE_PX)))


def page_key(patches: Sequence[dict[str, Any]], table: str) -> str:
    """Digest of squares, their labels, and the table that new labels are for; a browser keeps answers by it."""
    names = ("slide_id", "y", "x", "mpp", "side_px", "label")
    places = [[patch[name] for name in names if name in patch] for patch in patches]
    return hashlib.sha256(in_script([places, table]).encode()).hexdigest()[:16]


def mark_of(key: str) -> bytes:
    """What the head of a page has, so that it is known again."""
    return f'<meta name="generator" content="histo-monai label {key}">'.encode()


def page(
    patches: Sequence[dict[str, Any]], slides: dict[str, dict[str, Any]], classes: Sequence[str], key: str
) -> str:
    """The page.

    Args:
        patches: Of each square `slide_id`, `y`, `x` (level-0 pixels), `mpp`, `side_px` at that µm/px, `level0_side`
            (level-0 pixels) and `picture`; of a labeled square also `label`, and `other_label` if one is likelier.
        slides: slide_id -> `size_yx`, `bounds_yx` (level-0 pixels) and `picture`.
        classes: Class names to begin with.
        key: See `page_key`.
    """
    data = {
        "key": key, "patches": list(patches), "slides": slides, "classes": list(classes), "missing": sorted(MISSING),
        "member": MEMBER,
    }  # fmt: skip
    template = Path(__file__).with_name("label.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(template).render(data=in_script(data), mark=mark_of(key).decode())


def _jpeg(pixels: NDArray[np.uint8]) -> str:
    _, encoded = cv2.imencode(
        ".jpg", np.ascontiguousarray(pixels[..., ::-1]), [cv2.IMWRITE_JPEG_QUALITY, _QUALITY]
    )
    return "data:image/jpeg;base64," + base64.b64encode(encoded.tobytes()).decode()
