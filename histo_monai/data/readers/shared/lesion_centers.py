"""One slide with outlined lesions -> centers of patches inside the outlines and outside of them."""

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
        outlines: Of tumor.
        holes: Of normal tissue in it.
        unclear: Of what nobody has called tumor or normal: it counts as neither.
        left_out: What stands in the file and is none of these, or is `unclear`.
    """

    outlines: Sequence[Outline]
    holes: Sequence[Outline] = ()
    unclear: Sequence[Outline] = ()
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True)
class AnnotatedSlide:
    """A slide to draw from.

    Attributes:
        slide_id: Its name.
        path: Its file.
        split: train, validation or test.
        annotation: File with the outlines; None where the whole slide is normal.
        mpp: µm per level-0 pixel, None where the file must tell it.
    """

    slide_id: str
    path: Path
    split: str
    annotation: Path | None = None
    mpp: float | None = None

    def offers(self, label: str) -> bool:
        """Whether patches of a label are looked for on it."""
        return label == NORMAL or self.annotation is not None


@dataclass(frozen=True)
class LabelPlacement:
    """Where labeled patches may lie: their field inside the slide, and their center on tissue.

    Attributes:
        patch_px: Side of a patch.
        mpp: Its resolution, µm/px.
        min_tumor_fraction: Least part of a tumor patch's field that is tumor. A normal patch's field has none.
        tissue_mpp: Resolution of the tissue mask, µm/px.
        min_tissue_fraction: Least part of a patch's field that is tissue, of either label.
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
    """Centers that one slide offers by label, shape (n, 2), (y, x), level-0 pixels, and what was left out
    of its annotation; or why it cannot be used."""

    slide: AnnotatedSlide
    centers_yx: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    problem: str = ""
    left_out: tuple[LeftOut, ...] = ()

    def room(self, label: str) -> int:
        """How many centers it offers."""
        return len(self.centers_yx.get(label, ()))


def survey_labels(
    slide: AnnotatedSlide,
    num: Mapping[str, int],
    *,
    seed: int,
    placement: LabelPlacement,
    read_lesions: Callable[[Path], Lesions],
) -> LabelSurvey:
    """Open a slide, find its tissue and draw up to `num` centers of each label on it.

    One thumbnail at `tissue_mpp` is all that is read. Lesions are rasterized on the same grid, divided until a field
    is eight mask pixels wide or more (and coarser where the mask would pass 64 million pixels). That is fine enough at
    any width, because it errs to one side only: tumor counts pixels that are tumor all over, normal refuses pixels
    with any tumor, so a coarser mask gives less room, never a wrong label. Levels padded to whole tiles do no harm
    here: `Slide` knows the nominal downsample and cuts the padding off, so pixel i of a mask covers exactly
    mask_mpp / slide.mpp · [i, i + 1) of level 0, in which the outlines are drawn.

    A slide that cannot be used is an answer too: `problem` says why.
    """
    try:
        lesions = Lesions(()) if slide.annotation is None else read_lesions(slide.annotation)
        with open_slide(slide.path, slide.mpp) as opened:
            _check_slide(opened, slide, lesions, placement)
            canvas = _Canvas.of(opened, placement, is_fine=slide.annotation is not None)
        # Of each label's own name: how many are asked for of one label moves none of the other.
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
            f"{slide.annotation}: no outline lies on {slide.path} ({width} × {height} px); is it of another slide?"
        )


@dataclass(frozen=True)
class _Canvas:
    """The tissue of a slide, on the grid that its lesions are rasterized on too."""

    tissue: NDArray[np.bool_]
    mask_mpp: float
    slide_mpp: float
    placement: LabelPlacement

    @classmethod
    def of(cls, slide: Slide, placement: LabelPlacement, is_fine: bool) -> Self:
        """Read the tissue; `is_fine` asks for the grid of lesions, otherwise it is that of the tissue."""
        tissue_mpp = max(placement.tissue_mpp, slide.mpp)
        tissue = tissue_mask(slide.thumbnail(tissue_mpp))
        if not tissue.any():
            raise InputError(f"{slide.path}: no tissue found on it")
        parts = 1
        if is_fine:
            most = max(1, math.isqrt(_MOST_MASK_PX // tissue.size))
            parts = min(most, math.ceil(tissue_mpp * _PX_PER_FIELD / placement.field_um))
        mask_mpp = tissue_mpp / parts
        # What the rounding up of the thumbnail added is cut off again, up to one pixel.
        height, width = (math.ceil(side * slide.mpp / mask_mpp - 1e-6) for side in slide.size_yx)
        fine = tissue.repeat(parts, axis=0).repeat(parts, axis=1)[:height, :width]
        return cls(fine, mask_mpp, slide.mpp, placement)

    def tumor(self, lesions: Lesions, num: int, seeds: Seeds) -> NDArray[np.int64]:
        """Centers of fields with enough tumor and enough tissue."""
        least = self.placement.min_tissue_fraction - _ROUNDING
        inside = self._rasterize(lesions, "whole") & ~self._unclear(lesions)
        return self._draw(
            inside, self.placement.min_tumor_fraction, lambda fields: fields(self.tissue) >= least, num, seeds
        )

    def normal(self, lesions: Lesions, num: int, seeds: Seeds) -> NDArray[np.int64]:
        """Centers of fields without any tumor and with enough tissue."""
        touched = self._rasterize(lesions, "touched") | self._unclear(lesions)
        return self._draw(
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

    def _draw(
        self,
        mask: NDArray[np.bool_],
        least: float,
        is_good: Callable[[Callable[[NDArray[np.bool_]], NDArray[np.float64]]], NDArray[np.bool_]],
        num: int,
        seeds: Seeds,
    ) -> NDArray[np.int64]:
        """Up to `num` centers on tissue, with at least `least` of the field on `mask`, that are good besides.

        More are drawn than asked for until enough are good. Fewer are always the first of more, so how many rounds it
        takes changes nothing.
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
