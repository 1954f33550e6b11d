"""Slides with outlined lesions -> table of labeled patches, spread evenly over the slides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from histo_monai.data.readers.shared.lesion_centers import (
    NORMAL,
    AnnotatedSlide,
    LabelPlacement,
    LabelSurvey,
    Lesions,
    survey_labels,
)
from histo_monai.data.readers.shared.quotas import even_quotas
from histo_monai.data.tables.manifests import first_five
from histo_monai.slides.annotations import left_out_in_words
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.processes import map_over_processes

_SURPLUS = 8
"""A slide offers up to this multiple of its even part, to compensate slides with small lesions."""
_LEAST_OFFER = 4096


def sample_labeled_patches(
    slides: Sequence[AnnotatedSlide],
    wanted: Mapping[str, Mapping[str, int]],
    *,
    placement: LabelPlacement,
    read_lesions: Callable[[Path], Lesions],
    section: str,
    seed: int,
    skip_bad_slides: bool,
    processes: int,
) -> tuple[pd.DataFrame, list[str], list[str]]:
    """Sample patches with and without tumor from slides with splits.

    Slides of a split give equal numbers of a label, if their tissue and lesions allow; other slides compensate. Each
    slide has its own random generator, so the result does not depend on `processes`.

    Args:
        slides: Slides in the order in which they alternate in the rows.
        wanted: Numbers by split and label, {"train": {"tumor": 300, "normal": 300}, ...}.
        read_lesions: Reader of an annotation file; a module-level function, called in the processes.
        section: Section of params with min_tumor_fraction and, in `train`, `separate_validation` and `test`,
            num_<label>; for messages.
        skip_bad_slides: Whether to skip unusable slides.
        processes: Slides surveyed at the same time.

    Returns:
        Rows with the known columns of `data.tables.columns.PATCH_COLUMNS`; one line for each reason of skipped
        annotation content; and one line for each unusable slide.

    Raises:
        InputError: Slides are unusable without `skip_bad_slides`, or the slides have too few places for patches.
    """
    slides = [s for s in slides if any(n and s.offers(label) for label, n in wanted[s.split].items())]
    nums = [_offers(slide, slides, wanted[slide.split]) for slide in slides]
    work = partial(survey_labels, seed=seed, placement=placement, read_lesions=read_lesions)
    surveys = list(map_over_processes(work, slides, nums, processes=processes, title="slides", unit="slide"))
    problems = [survey.problem for survey in surveys if survey.problem]
    refuse_bad_slides(problems, skip_bad_slides)
    notes = left_out_in_words([one for survey in surveys for one in survey.left_out])
    parts = []
    for split, labels in wanted.items():
        here = [s for s in surveys if s.slide.split == split and not s.problem]
        turns = [_take(here, split, label, n, section, placement) for label, n in labels.items() if n]
        # Slides and labels alternate, so the first batch in table order contains all of them.
        parts += [pd.concat(turns).sort_index(kind="stable")] if turns else []
    rows = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return rows.assign(mpp=placement.mpp, side_px=placement.patch_px), notes, problems


def refuse_bad_slides(problems: Sequence[str], skip_bad_slides: bool) -> None:
    """Raise an `InputError` that names the first problems, unless they are skipped."""
    if problems and not skip_bad_slides:
        raise InputError(
            f"{len(problems)} slides cannot give labeled patches: {first_five(problems)}. "
            "Fix: correct or remove them, or set index.skip_bad_slides: true."
        )


def _offers(
    slide: AnnotatedSlide, slides: Sequence[AnnotatedSlide], labels: Mapping[str, int]
) -> dict[str, int]:
    """Number of centers to sample on a slide, by label."""
    offers = {}
    for label, wanted in labels.items():
        num_slides = sum(s.split == slide.split and s.offers(label) for s in slides)
        most = max(_LEAST_OFFER, _SURPLUS * -(-wanted // max(1, num_slides)))
        offers[label] = min(wanted, most) if slide.offers(label) else 0
    return offers


def _take(
    surveys: Sequence[LabelSurvey],
    split: str,
    label: str,
    wanted: int,
    section: str,
    placement: LabelPlacement,
) -> pd.DataFrame:
    num_places = np.array([survey.room(label) for survey in surveys], np.int64)
    if num_places.sum() < wanted:
        field_um = f"a field of {placement.field_um:g} µm"
        key = "separate_validation" if split == "validation" else split
        lower = "index.min_tissue_fraction" if label == NORMAL else f"{section}.min_tumor_fraction"
        raise InputError(
            f"{split}: {np.count_nonzero(num_places)} slides offer {num_places.sum()} {label} places for {field_um}, "
            f"fewer than {wanted}. Fix: lower {section}.{key}.num_{label} or {lower}, or add slides."
        )
    parts = [pd.DataFrame()]
    for survey, num in zip(surveys, even_quotas(num_places, wanted), strict=True):
        if num:
            parts.append(_rows(survey, label, int(num)))
    return pd.concat(parts)


def _rows(survey: LabelSurvey, label: str, num: int) -> pd.DataFrame:
    slide, centers = survey.slide, survey.centers_yx[label][:num]
    return pd.DataFrame(
        {
            "patch_id": [f"{slide.slide_id}-y{y}-x{x}" for y, x in centers],
            "path": str(slide.path),
            "slide_id": slide.slide_id,
            "y": centers[:, 0],
            "x": centers[:, 1],
            "label": label,
            "split": slide.split,
            "slide_mpp": float("nan") if slide.mpp is None else slide.mpp,
        }
    )
