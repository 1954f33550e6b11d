"""Slides with outlined lesions -> rows of labeled patches, shared out over the slides."""

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
from histo_monai.data.readers.shared.shares import fair_shares
from histo_monai.data.tables.manifests import first_five
from histo_monai.slides.annotations import left_out_in_words
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.processes import map_over_processes

_SURPLUS = 8
"""A slide offers up to this many times its fair share, so that others with small lesions can be made up for."""
_LEAST_OFFER = 4096


def draw_labeled_patches(
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
    """Draw patches with and without tumor from slides that are split already.

    Every slide of a split gives the same number of a label, as far as its tissue and lesions go; what one lacks, the
    others make up. Each slide draws from a generator of its own, so the result does not depend on `processes`.

    Args:
        slides: In the order in which they take turns in the rows.
        wanted: How many for each split and label, {"train": {"tumor": 300, "normal": 300}, ...}.
        read_lesions: What an annotation file says; a function of a module, called in the processes.
        section: Of params, that errors name: it holds min_tumor_fraction and, in
            `train`, `separate_validation` and `test`, num_<label>.
        skip_bad_slides: Go on without slides that cannot be used.
        processes: Slides surveyed at the same time.

    Returns:
        The rows, columns of `data.tables.columns.PATCH_COLUMNS` (not those that nothing is known about); what was left
        out of the annotations, a line for each reason; and one line for every slide that could not be used.

    Raises:
        InputError: slides cannot be used and `skip_bad_slides` is not set, or the slides have no room for as many
            patches as asked for.
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
        # Slides and labels take turns, so that the first batch of a pass in order already shows all of them.
        parts += [pd.concat(turns).sort_index(kind="stable")] if turns else []
    rows = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return rows.assign(mpp=placement.mpp, side_px=placement.patch_px), notes, problems


def refuse_bad_slides(problems: Sequence[str], skip_bad_slides: bool) -> None:
    """Raise an `InputError` of one line that names the first problems, where they are not to be skipped."""
    if problems and not skip_bad_slides:
        raise InputError(
            f"{len(problems)} slides cannot give labeled patches: {first_five(problems)}. "
            "Mend or remove them, or set index.skip_bad_slides: true to go on without them"
        )


def _offers(
    slide: AnnotatedSlide, slides: Sequence[AnnotatedSlide], labels: Mapping[str, int]
) -> dict[str, int]:
    """How many centers of each label a slide is asked for."""
    offers = {}
    for label, wanted in labels.items():
        sharers = sum(s.split == slide.split and s.offers(label) for s in slides)
        most = max(_LEAST_OFFER, _SURPLUS * -(-wanted // max(1, sharers)))
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
    room = np.array([survey.room(label) for survey in surveys], np.int64)
    if room.sum() < wanted:
        field_um = f"a field of {placement.field_um:g} µm"
        key = "separate_validation" if split == "validation" else split
        lower = "index.min_tissue_fraction" if label == NORMAL else f"{section}.min_tumor_fraction"
        raise InputError(
            f"{split}: the {np.count_nonzero(room)} slides with a place for {field_um} that is {label} have room for "
            f"{room.sum()} patches, {wanted} are asked for; lower {section}.{key}.num_{label} or {lower}, "
            "or give more slides"
        )
    parts = [pd.DataFrame()]
    for survey, share in zip(surveys, fair_shares(room, wanted), strict=True):
        if share:
            parts.append(_rows(survey, label, int(share)))
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
