"""Tissue of a slide without artefacts, by rules and by the user's outlines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides import Slide, tissue_mask
from histo_monai.slides.annotations import Frame, Region, rasterize_regions, read_annotations
from histo_monai.slides.artefacts import FOCUS_MPP, Artefact, blur_mask, dark_mask, pen_mask
from histo_monai.utils.errors import InputError

TISSUE, ARTEFACTS = "tissue", ("artefact", "artifact")
"""Classes or names of the user's outlines: all usable tissue, and excluded areas."""


@dataclass(frozen=True)
class TissueRules:
    """Rules for the tissue of a slide that is used.

    Attributes:
        mpp: Resolution of the tissue mask, µm/px; a coarser slide uses its own.
        artefacts: Rules of `slides.artefacts` for tissue that is not used; "blur" reads the slide at 4 µm/px.
    """

    mpp: float = 16.0
    artefacts: tuple[Artefact, ...] = ()


class UsableTissue(NamedTuple):
    """Tissue of a slide that is used.

    Attributes:
        mask: Usable tissue, shape (h, w), bool, from the slide's upper left corner.
        mpp: µm per mask pixel.
        tissue: All tissue (`tissue_mask`), shape (h, w), bool.
        excluded: Artefacts, and tissue that outlines exclude, shape (h, w), bool.
    """

    mask: NDArray[np.bool_]
    mpp: float
    tissue: NDArray[np.bool_]
    excluded: NDArray[np.bool_]

    @property
    def excluded_fraction(self) -> float:
        """Fraction of the tissue that is not used, 0..1."""
        return float((self.tissue & ~self.mask).sum() / max(1, self.tissue.sum()))


def usable_tissue(slide: Slide, rules: TissueRules, outlines: str | Path = "") -> UsableTissue:
    """Tissue without artefacts.

    Ink and dark areas become white before the tissue mask, so they do not affect its threshold. Outlines named artefact
    are excluded, too. Outlines named tissue replace the tissue mask and the rules.

    Args:
        outlines: GeoJSON file of the user's outlines; empty: none.

    Raises:
        InputError: The file of outlines is invalid.
        SlideError: The slide is damaged.
    """
    mpp = max(rules.mpp, slide.mpp)
    rgb = slide.thumbnail(mpp)
    tissue = mask = tissue_mask(rgb)
    excluded = np.zeros_like(tissue)
    areas, artefact_areas = read_outlines(outlines, slide.bounds_yx) if outlines else ([], [])
    if areas:
        mask = rasterize_regions(areas, downsample=mpp / slide.mpp, shape=tissue.shape)
    else:
        for name, rule in (("pen", pen_mask), ("dark", dark_mask)):
            if name in rules.artefacts:
                excluded |= rule(rgb)
        if excluded.any():
            mask = tissue_mask(np.where(excluded[..., None], np.uint8(255), rgb)) & ~excluded
        if "blur" in rules.artefacts:
            blurred = blur_mask(slide.thumbnail(max(FOCUS_MPP, slide.mpp)), mask)
            excluded |= blurred
            mask = mask & ~blurred
    if artefact_areas:
        excluded |= rasterize_regions(artefact_areas, downsample=mpp / slide.mpp, shape=tissue.shape)
        mask = mask & ~excluded
    if areas:
        excluded |= tissue & ~mask
    return UsableTissue(mask, mpp, tissue, excluded)


def read_outlines(path: str | Path, bounds_yx: tuple[int, int] | None) -> tuple[list[Region], list[Region]]:
    """The user's outlines of tissue and of artefacts, level-0 pixels.

    Args:
        path: GeoJSON of QuPath; each outline has the class, or else the name, tissue or artefact.
        bounds_yx: Corner of the slide's bounds, from which QuPath counts; None to check the file alone.

    Raises:
        InputError: The file is no GeoJSON, has no outline, or has an outline named otherwise.
    """
    regions, _ = read_annotations(Path(path), frame=Frame(bounds_yx))
    names = [(region.label or region.name).strip().casefold() for region in regions]
    odd = [name for name in names if name not in (TISSUE, *ARTEFACTS)]
    if odd or not regions:
        problem = f"an outline has the class {odd[0]!r}" if odd else "no outline"
        raise InputError(f"{path}: {problem}. Fix: outline areas of class {ARTEFACTS[0]} or {TISSUE}.")
    pairs = list(zip(names, regions, strict=True))
    return (
        [region for name, region in pairs if name == TISSUE],
        [region for name, region in pairs if name != TISSUE],
    )
