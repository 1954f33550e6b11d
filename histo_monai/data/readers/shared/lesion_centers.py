"""Slide with outlined lesions -> centers of patches inside and outside the outlines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides import Slide, choose_level, open_slide, sample_centers, tissue_fraction, tissue_mask
from histo_monai.slides.annotations import LeftOut, Outline, Rule, rasterize
from histo_monai.utils.errors import InputError
from histo_monai.utils.randomness import generator

TUMOR, NORMAL = "tumor", "normal"

_PX_PER_FIELD = 8
_MOST_MASK_PX = 2**26
_ROUNDING = 1e-7

Seeds = Callable[[], np.random.Generator]


@dataclass(frozen=True)
class Lesions:
    """Outlines of a slide: tumor is inside any of `outlines` and inside none of `holes`.

    Attributes:
        outlines: Outlines of tumor.
        holes: Outlines of normal tissue inside tumor.
        unclear: Outlines without a label, neither tumor nor normal.
        left_out: Skipped content of the file, and `unclear` outlines.
    """

    outlines: Sequence[Outline]
    holes: Sequence[Outline] = ()
    unclear: Sequence[Outline] = ()
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True)
class AnnotatedSlide:
    """Slide to sample patches from.

    Attributes:
        slide_id: Name of the slide.
        path: File of the slide.
        split: "train", "validation" or "test".
        annotation: File of outlines; None for a normal slide.
        mpp: µm per level-0 pixel; None if the file states it.
        is_exhaustive: Whether all tumor is outlined; else no place is known to be normal.
    """

    slide_id: str
    path: Path
    split: str
    annotation: Path | None = None
    mpp: float | None = None
    is_exhaustive: bool = True

    def offers(self, label: str) -> bool:
        """Whether the slide can have patches of a label."""
        return self.is_exhaustive if label == NORMAL else self.annotation is not None


@dataclass(frozen=True)
class LabelPlacement:
    """Placement of labeled patches: the field lies inside the slide, the center on tissue.

    Attributes:
        patch_px: Side of a patch.
        mpp: Resolution of a patch, µm/px.
        min_tumor_fraction: Least tumor fraction of a tumor patch's field. A normal patch's field has no tumor.
        tissue_mpp: Resolution of the tissue mask, µm/px.
        min_tissue_fraction: Least tissue fraction of a patch's field, for both labels.
    """

    patch_px: int
    mpp: float
    min_tumor_fraction: float
    tissue_mpp: float
    min_tissue_fraction: float

    @property
    def field_um(self) -> float:
        """Side of a patch in µm."""
        return self.patch_px * self.mpp


@dataclass(frozen=True)
class LabelSurvey:
    """Centers on one slide by label, shape (n, 2), (y, x), level-0 pixels, and skipped annotation content; or the
    problem of an unusable slide."""

    slide: AnnotatedSlide
    centers_yx: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    problem: str = ""
    left_out: tuple[LeftOut, ...] = ()

    def room(self, label: str) -> int:
        """Number of centers of a label."""
        return len(self.centers_yx.get(label, ()))


def survey_labels(
    slide: AnnotatedSlide,
    num: Mapping[str, int],
    *,
    seed: int,
    placement: LabelPlacement,
    read_lesions: Callable[[Path], Lesions],
) -> LabelSurvey:
    """Sample up to `num` centers of each label on a slide; an unusable slide returns its `problem`.

    The survey reads one thumbnail at `tissue_mpp`. Lesions are rasterized on its grid, refined until a field is at
    least eight mask pixels wide, up to 64 million pixels. A coarse mask gives fewer places but no wrong label: tumor
    counts pixels fully inside tumor, normal refuses pixels with any tumor. `Slide` removes the padding of levels, so
    mask pixel i covers exactly mask_mpp / slide.mpp · [i, i + 1) of level 0.
    """
    try:
        lesions = Lesions(()) if slide.annotation is None else read_lesions(slide.annotation)
        with open_slide(slide.path, slide.mpp) as opened:
            _check_slide(opened, slide, lesions, placement)
            canvas = _Canvas.of(opened, placement, is_fine=slide.annotation is not None)
        # One random stream per label: the number of one label does not change the centers of the other.
        seeds = {label: partial(generator, seed, "patches", label, slide.slide_id) for label in num}
        offers = {TUMOR: canvas.tumor, NORMAL: canvas.normal}
        centers_yx = {label: offers[label](lesions, n, seeds[label]) for label, n in num.items()}
        return LabelSurvey(slide, centers_yx, left_out=lesions.left_out)
    except (InputError, OSError) as error:
        return LabelSurvey(slide, problem=str(error))


def _check_slide(opened: Slide, slide: AnnotatedSlide, lesions: Lesions, placement: LabelPlacement) -> None:
    try:
        choose_level(opened.level_mpps, placement.mpp)
    except InputError as error:
        raise InputError(f"{slide.path}: {error}") from None
    height, width = opened.size_yx
    corners = [(one.points_yx.min(axis=0), one.points_yx.max(axis=0)) for one in lesions.outlines]
    if corners and not any((low < (height, width)).all() and (high > 0).all() for low, high in corners):
        raise InputError(
            f"{slide.annotation}: no outline lies on {slide.path} ({width} × {height} px). "
            "Fix: check whether it is of another slide."
        )


@dataclass(frozen=True)
class _Canvas:
    """Tissue mask of a slide, on the grid of its lesion masks."""

    tissue: NDArray[np.bool_]
    mask_mpp: float
    slide_mpp: float
    placement: LabelPlacement

    @classmethod
    def of(cls, slide: Slide, placement: LabelPlacement, is_fine: bool) -> Self:
        """Tissue mask on the fine grid of lesions if `is_fine`, else on the grid of the thumbnail."""
        tissue_mpp = max(placement.tissue_mpp, slide.mpp)
        tissue = tissue_mask(slide.thumbnail(tissue_mpp))
        if not tissue.any():
            raise InputError(f"{slide.path}: no tissue on this slide. Fix: check or remove it.")
        parts = 1
        if is_fine:
            most = max(1, math.isqrt(_MOST_MASK_PX // tissue.size))
            parts = min(most, math.ceil(tissue_mpp * _PX_PER_FIELD / placement.field_um))
        mask_mpp = tissue_mpp / parts
        # Remove the up to one pixel that the thumbnail's size was rounded up by.
        height, width = (math.ceil(side * slide.mpp / mask_mpp - 1e-6) for side in slide.size_yx)
        fine = tissue.repeat(parts, axis=0).repeat(parts, axis=1)[:height, :width]
        return cls(fine, mask_mpp, slide.mpp, placement)

    def tumor(self, lesions: Lesions, num: int, seeds: Seeds) -> NDArray[np.int64]:
        """Centers of fields with enough tumor and tissue."""
        least = self.placement.min_tissue_fraction - _ROUNDING
        inside = self._rasterize(lesions, "whole") & ~self._unclear(lesions)
        return self._sample(
            inside, self.placement.min_tumor_fraction, lambda fields: fields(self.tissue) >= least, num, seeds
        )

    def normal(self, lesions: Lesions, num: int, seeds: Seeds) -> NDArray[np.int64]:
        """Centers of fields without any tumor and with enough tissue."""
        touched = self._rasterize(lesions, "touched") | self._unclear(lesions)
        return self._sample(
            self.tissue & ~touched,
            self.placement.min_tissue_fraction,
            lambda fields: fields(touched) <= _ROUNDING,
            num,
            seeds,
        )

    def _unclear(self, lesions: Lesions) -> NDArray[np.bool_]:
        return self._rasterize(Lesions(lesions.unclear), "touched")

    def _rasterize(self, lesions: Lesions, rule: Rule) -> NDArray[np.bool_]:
        downsample = self.mask_mpp / self.slide_mpp
        return rasterize(
            lesions.outlines, lesions.holes, downsample=downsample, shape=self.tissue.shape, rule=rule
        )

    def _sample(
        self,
        mask: NDArray[np.bool_],
        least: float,
        is_good: Callable[[Callable[[NDArray[np.bool_]], NDArray[np.float64]]], NDArray[np.bool_]],
        num: int,
        seeds: Seeds,
    ) -> NDArray[np.int64]:
        """Up to `num` centers on tissue with at least `least` of the field on `mask`, which pass `is_good`.

        The number of candidates grows until enough are good. A smaller sample is the beginning of a larger one, so the
        number of rounds does not change the result.
        """
        if not num:
            return np.zeros((0, 2), np.int64)
        field_um = self.placement.field_um
        most = max(16 * num, int(mask.sum()))
        asked = min(2 * num, most)
        while True:
            centers = sample_centers(
                mask,
                mask_mpp=self.mask_mpp,
                slide_mpp=self.slide_mpp,
                num=asked,
                side_um=field_um,
                min_tissue_fraction=least,
                generator=seeds(),
                within_um=field_um,
            )
            places = centers * (self.slide_mpp / self.mask_mpp)
            on_tissue = self.tissue[tuple(places.astype(np.int64).T)]
            good = on_tissue & is_good(
                partial(tissue_fraction, centers_yx=places, side_px=field_um / self.mask_mpp)
            )
            if good.sum() >= num or len(centers) < asked or asked >= most:
                return centers[good][:num]
            asked = min(4 * asked, most)
