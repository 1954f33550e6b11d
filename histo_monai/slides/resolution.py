"""Resolve µm per level-0 pixel from the manifest and the file's statements."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from histo_monai.slides.errors import NoResolutionError, SlideError
from histo_monai.slides.tiff import Page
from histo_monai.slides.tiff.descriptions import (
    OmeImage,
    aperio_mpp,
    aperio_power,
    ome_image_of,
    ome_images,
    philips_mpp_yx,
    positive_number,
)

logger = logging.getLogger(__name__)

PLAUSIBLE_MPP = (0.05, 20.0)
"""Range of microscopes, µm per pixel, from 100x oil to a macro scan; 72 dpi of picture editors is 353."""

_UM_PER_UNIT = {2: 25_400.0, 3: 10_000.0}
_CONTRADICTION = 0.05
_SQUARE = 0.05

_MPP_OF_1X = 10.0
"""µm/px times objective power: 0.25 at 40x, 0.5 at 20x."""

_ODD_FOR_POWER = 2.5
"""Largest factor from 10 µm / power without a warning; scanners with an adapter have 0.22 at 20x."""

_TEN_FOLD = 1.5
"""Tolerance when testing for a slip of a factor of ten: scanners differ this much at one power."""

_SLIPS = {10.0: "px/cm and px/mm were mixed up", 2.54: "px/inch and px/cm were mixed up"}
"""Ratios of two statements with a common cause."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A resolution of level 0 stated by one source; `mpp_yx` is µm per pixel, down and across."""

    source: str
    mpp_yx: tuple[float, float]

    @property
    def mpp(self) -> float:
        """Mean of both axes, µm per pixel."""
        return (self.mpp_yx[0] + self.mpp_yx[1]) / 2


def resolve_mpp(
    path: Path, stated: float | None, pages: Sequence[Page], properties: Mapping[str, str]
) -> float:
    """The resolution of a slide's level 0, µm per pixel.

    The manifest overrides the file, with a warning where both differ by more than 5 %. Order of the file's sources:
    Aperio's MPP, Philips' spacing, OME's PhysicalSize, TIFF resolution tags, OpenSlide. A warning names two sources
    that differ by more than 5 %, and a resolution that no objective of the stated power has.

    Args:
        path: For messages.
        stated: The manifest's ``mpp``, or None.
        pages: TIFF pages, level 0 first; empty for other formats.
        properties: OpenSlide's properties; empty if OpenSlide did not open level 0.

    Raises:
        NoResolutionError: No source states a plausible resolution.
        SlideError: Pixels are not square.
    """
    statements = list(_statements(pages, properties))
    plausible = [one for one in statements if all(map(_is_plausible, one.mpp_yx))]
    of_file = _squared(path, plausible[0]) if plausible else None
    if stated is not None:
        if not _is_plausible(stated):
            raise SlideError(
                path,
                f"mpp = {stated:g} in the table of slides is no microscope resolution. Fix: set {_range()}.",
            )
        if of_file is not None and abs(of_file - stated) > _CONTRADICTION * of_file:
            logger.warning(
                "slide %s: the manifest: %g µm/px, the file: %g µm/px%s; using the manifest",
                path, stated, of_file, _slip(stated / of_file),
            )  # fmt: skip
        _warn_of_power(path, float(stated), objective_power(pages, properties))
        return float(stated)
    if of_file is None:
        odd = "".join(f"; {one.source}: {one.mpp:.4g}" for one in statements)
        raise NoResolutionError(
            path,
            f"states no resolution ({_range()}{odd}). Fix: fill the column mpp of the table of slides (µm per "
            "level-0 pixel).",
        )
    _warn_of_contradiction(path, plausible)
    _warn_of_power(path, of_file, objective_power(pages, properties))
    return of_file


def objective_power(pages: Sequence[Page], properties: Mapping[str, str]) -> float | None:
    """The objective power of level 0 (20 for 20x), from Aperio's AppMag, OME or OpenSlide; None without any.

    Args:
        pages: TIFF pages, level 0 first; empty for other formats.
        properties: OpenSlide's properties; empty if OpenSlide did not open level 0.
    """
    image = _ome_image(pages)
    return (
        (aperio_power(pages[0]) if pages else None)
        or (image.power if image else None)
        or positive_number(properties.get("openslide.objective-power"))
    )


def _statements(pages: Sequence[Page], properties: Mapping[str, str]) -> Iterator[Statement]:
    """All statements, plausible or not, by precedence."""
    aperio = aperio_mpp(pages[0]) if pages else None
    if not (pages and pages[0].description.startswith("Aperio")):
        aperio = positive_number(properties.get("aperio.MPP"))
    if aperio:
        yield Statement("Aperio's description", (aperio, aperio))
    if pages:
        philips, image = philips_mpp_yx(_first(pages)), _ome_image(pages)
        if philips:
            yield Statement("the description of Philips", philips)
        if image and image.mpp_yx:
            yield Statement("the description of OME", image.mpp_yx)
        tags = pages[0].resolution_yx
        if tags and min(tags) > 0 and pages[0].resolution_unit in _UM_PER_UNIT:
            um = _UM_PER_UNIT[pages[0].resolution_unit]
            yield Statement("the TIFF tags", (um / tags[0], um / tags[1]))
    y, x = (positive_number(properties.get(f"openslide.mpp-{axis}")) for axis in "yx")
    if y and x:
        yield Statement("OpenSlide", (y, x))


def _first(pages: Sequence[Page]) -> Page:
    """The first image of the file; Philips and OME describe the file there."""
    return min(pages, key=lambda page: page.number)


def _ome_image(pages: Sequence[Page]) -> OmeImage | None:
    return ome_image_of(pages[0], ome_images([_first(pages)])) if pages else None


def _warn_of_contradiction(path: Path, plausible: Sequence[Statement]) -> None:
    used = plausible[0]
    for other in plausible[1:]:
        if abs(other.mpp - used.mpp) > _CONTRADICTION * used.mpp:
            logger.warning(
                "slide %s: %s: %g µm/px, %s: %g µm/px%s; using %g. Fix if wrong: fill the column mpp of the "
                "table of slides",
                path, used.source, used.mpp, other.source, other.mpp, _slip(other.mpp / used.mpp), used.mpp,
            )  # fmt: skip
            return


def _warn_of_power(path: Path, mpp: float, power: float | None) -> None:
    if power is None:
        return
    ratio = mpp * power / _MPP_OF_1X
    if not 1 / _ODD_FOR_POWER <= ratio <= _ODD_FOR_POWER:
        slip = min((10.0, 0.1), key=lambda one: abs(ratio - one) / one)
        is_slip = 1 / _TEN_FOLD <= ratio / slip <= _TEN_FOLD
        logger.warning(
            "slide %s: %g µm/px at %gx, where about %g is usual%s. Fix if wrong: fill the column mpp of the table "
            "of slides",
            path, mpp, power, _MPP_OF_1X / power, _slip(slip) if is_slip else "",
        )  # fmt: skip


def _slip(ratio: float) -> str:
    """The common cause of two statements of this ratio, with a comma before it; else empty."""
    for slip, why in _SLIPS.items():
        if any(abs(ratio - one) <= _CONTRADICTION * one for one in (slip, 1 / slip)):
            return f", {slip:g} times as {'much' if ratio > 1 else 'little'}: perhaps {why}"
    return ""


def _range() -> str:
    return f"{PLAUSIBLE_MPP[0]:g} to {PLAUSIBLE_MPP[1]:g} µm/px"


def _is_plausible(mpp: float) -> bool:
    return PLAUSIBLE_MPP[0] <= mpp <= PLAUSIBLE_MPP[1]


def _squared(path: Path, statement: Statement) -> float:
    y, x = statement.mpp_yx
    if abs(y - x) > _SQUARE * x:
        raise SlideError(path, f"pixels are not square ({y:g} x {x:g} µm). Fix: resample the slide.")
    return statement.mpp
