"""How many µm a level-0 pixel spans: what the file says, what the manifest says, and which of them counts."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from histo_monai.slides.errors import NoResolutionError, SlideError
from histo_monai.slides.tiff import Page

logger = logging.getLogger(__name__)

PLAUSIBLE_MPP = (0.05, 20.0)
"""µm per pixel of microscopes, from 100x oil to a macro scan; 72 dpi, what picture editors write, is 353."""

_UM_PER_UNIT = {2: 25_400.0, 3: 10_000.0}
_CONTRADICTION = 0.05
_SQUARE = 0.05


def resolve_mpp(path: Path, stated: float | None, pages: list[Page], properties: Mapping[str, str]) -> float:
    """The resolution of a slide's level 0.

    A number in the manifest wins, since somebody wrote it on purpose; where it differs from the file's own by
    more than 5 % a warning says so. Of the file: Aperio's MPP, then the TIFF resolution tags, then OpenSlide.

    Args:
        path: The slide, for messages.
        stated: The manifest's ``mpp``, or None.
        pages: The TIFF's pages; empty for other formats.
        properties: OpenSlide's properties; empty where OpenSlide cannot read the file.

    Raises:
        NoResolutionError: If nothing states a plausible resolution.
        SlideError: If pixels are not square.
    """
    of_file = _aperio_mpp(pages, properties) or _tag_mpp(path, pages) or _openslide_mpp(path, properties)
    if stated is not None:
        if not _is_plausible(stated):
            raise SlideError(
                path, f"mpp = {stated:g} in the manifest is no microscope resolution ({_range()})"
            )
        if of_file is not None and abs(of_file - stated) > _CONTRADICTION * of_file:
            logger.warning(
                "slide %s: the manifest says %g µm/px, the file %g; using the manifest", path, stated, of_file
            )
        return float(stated)
    if of_file is None:
        raise NoResolutionError(
            path, f"states no resolution ({_range()}); fill the manifest column mpp (µm per level-0 pixel)"
        )
    return of_file


def objective_power(pages: Sequence[Page], properties: Mapping[str, str]) -> float | None:
    """The objective power of a slide's level 0 (20 for 20x): Aperio's AppMag, then OpenSlide's; None without either.

    Args:
        pages: The TIFF's pages; empty for other formats.
        properties: OpenSlide's properties; empty where OpenSlide did not open the file.
    """
    match = re.search(r"\|\s*AppMag\s*=\s*([0-9.]+)", pages[0].description if pages else "")
    try:
        power = float(match.group(1) if match else properties.get("openslide.objective-power", ""))
    except ValueError:
        return None
    return power if 0 < power < float("inf") else None


def _range() -> str:
    return f"{PLAUSIBLE_MPP[0]:g} to {PLAUSIBLE_MPP[1]:g} µm/px"


def _is_plausible(mpp: float) -> bool:
    return PLAUSIBLE_MPP[0] <= mpp <= PLAUSIBLE_MPP[1]


def _number(text: str | None) -> float | None:
    try:
        value = float((text or "").replace(",", "."))
    except ValueError:
        return None
    return value if _is_plausible(value) else None


def _aperio_mpp(pages: list[Page], properties: Mapping[str, str]) -> float | None:
    description = pages[0].description if pages else ""
    if description.startswith("Aperio"):
        match = re.search(r"\|\s*MPP\s*=\s*([0-9.,]+)", description)
        return _number(match.group(1)) if match else None
    return _number(properties.get("aperio.MPP"))


def _tag_mpp(path: Path, pages: list[Page]) -> float | None:
    page = pages[0] if pages else None
    if page is None or page.resolution_yx is None or page.resolution_unit not in _UM_PER_UNIT:
        return None
    y, x = (_UM_PER_UNIT[page.resolution_unit] / value for value in page.resolution_yx)
    return _square(path, y, x)


def _openslide_mpp(path: Path, properties: Mapping[str, str]) -> float | None:
    y, x = (_number(properties.get(f"openslide.mpp-{axis}")) for axis in "yx")
    return None if x is None or y is None else _square(path, y, x)


def _square(path: Path, mpp_y: float, mpp_x: float) -> float | None:
    if not (_is_plausible(mpp_y) and _is_plausible(mpp_x)):
        return None
    if abs(mpp_y - mpp_x) > _SQUARE * mpp_x:
        raise SlideError(path, f"pixels are not square ({mpp_y:g} x {mpp_x:g} µm); resample the slide first")
    return (mpp_y + mpp_x) / 2
