"""Build the pretraining tables slides.csv and centers.csv from a corpus of slides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.readers.coordinates import read_patch_centers
from histo_monai.data.readers.shared.quotas import even_quotas
from histo_monai.data.tables.columns import CENTER_COLUMNS, SLIDE_COLUMNS
from histo_monai.data.tables.manifests import first_five
from histo_monai.data.tables.splits import check_patients_apart, split_slides
from histo_monai.slides import Slide, choose_level, open_slide, sample_centers
from histo_monai.slides.tiles.usable import TissueRules, usable_tissue
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.processes import map_over_processes
from histo_monai.utils.randomness import generator
from histo_monai.utils.storage import identify_slide

_SURPLUS = 4
"""Most multiple of its fair number of centers that a slide offers, to compensate for slides with little tissue."""


@dataclass(frozen=True)
class Placement:
    """Rules for centers: on tissue, with the field of the coarsest patch inside the slide.

    A field beyond the edge would contain white, more of it in coarser patches. A network could then read the resolution
    from the width of the white strip.

    Args:
        mpps: Resolutions of a sample, µm/px, finest first; the slide must support the finest.
        tissue: Rules for the tissue that is used.
        min_tissue_fraction: Least tissue fraction of the finest patch's field, which all resolutions contain.
    """

    patch_px: int
    mpps: tuple[float, ...]
    tissue: TissueRules
    min_tissue_fraction: float


@dataclass(frozen=True)
class SlideSurvey:
    """Centers and facts of one slide, or the reason why it is unusable (`problem`)."""

    slide_id: str
    mpp: float = float("nan")
    size_yx: tuple[int, int] = (0, 0)
    tissue_fraction: float = 0.0
    centers_yx: np.ndarray | None = None
    content: str = ""
    problem: str = ""

    @property
    def num_centers(self) -> int:
        """Number of centers."""
        return 0 if self.centers_yx is None else len(self.centers_yx)


def survey_slide(
    slide_id: str,
    path: Path,
    mpp: float | None,
    coordinates: str,
    outlines: str,
    num: int,
    seed: int,
    placement: Placement,
) -> SlideSurvey:
    """The survey of a slide: up to `num` random centers on its usable tissue, or from a file of coordinates.

    An unusable slide sets `problem`; no error is raised.
    """
    try:
        with open_slide(path, mpp) as slide:
            mask, mask_mpp, *_ = usable_tissue(slide, placement.tissue, outlines)
            _check_resolution(path, slide.level_mpps, placement.mpps[0])
            rng = generator(seed, "centers", slide_id)
            within_um = placement.patch_px * placement.mpps[-1]
            if coordinates:
                centers = _from_file(Path(coordinates), slide, num, within_um, rng)
            else:
                centers = sample_centers(
                    mask,
                    mask_mpp=mask_mpp,
                    slide_mpp=slide.mpp,
                    num=num,
                    side_um=placement.patch_px * placement.mpps[0],
                    min_tissue_fraction=placement.min_tissue_fraction,
                    generator=rng,
                    within_um=within_um,
                )
            if not len(centers):
                return SlideSurvey(slide_id, problem=f"{path}: {_why_no_center(bool(mask.any()), placement)}")
            content = identify_slide(path).sample_sha256
            return SlideSurvey(slide_id, slide.mpp, slide.size_yx, float(mask.mean()), centers, content)
    except (InputError, OSError) as error:
        return SlideSurvey(slide_id, problem=str(error))


def _from_file(
    path: Path, slide: Slide, num: int, within_um: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Up to `num` random patch centers of a coordinate file whose coarsest field lies inside the slide."""
    centers = np.rint(read_patch_centers(path))
    half = within_um / slide.mpp / 2
    inside = ((centers >= half) & (centers <= np.array(slide.size_yx) - half)).all(axis=1)
    if not inside.any():
        raise InputError(
            f"{path}: none of its {len(centers)} patches has a field of {within_um:g} µm inside {slide.path} "
            "(patch_px × coarsest mpp). Fix: use the coordinates of this slide."
        )
    centers = np.unique(centers[inside], axis=0).astype(np.int64)
    return rng.permutation(centers)[:num]


def _why_no_center(has_tissue: bool, placement: Placement) -> str:
    if not has_tissue:
        return "no tissue found on it"
    field_um = placement.patch_px * placement.mpps[-1]
    return (
        f"no place on its tissue holds a field of {field_um:g} µm inside the slide "
        f"(patch_px × coarsest mpp) and {placement.min_tissue_fraction:g} tissue (index.min_tissue_fraction)"
    )


def _check_resolution(path: Path, level_mpps: tuple[float, ...], mpp: float) -> None:
    try:
        choose_level(level_mpps, mpp)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def no_slides() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Empty tables of `build_pretraining_index`, for runs without pretraining."""
    return (
        pd.DataFrame(columns=list(SLIDE_COLUMNS)),
        pd.DataFrame(columns=list(CENTER_COLUMNS)),
        pd.DataFrame(columns=["slide_id", "problem"]),
    )


def build_pretraining_index(
    corpus: pd.DataFrame,
    *,
    num: dict[str, int],
    placement: Placement,
    validation_fraction: float,
    seed: int,
    skip_bad_slides: bool,
    processes: int,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Slides and centers of the pretraining, with the corpus split by patient or slide.

    Slides of a split give equally many centers as far as their tissue allows; other slides make up a shortage. Each
    slide has its own generator, so the result does not depend on `processes`.

    Args:
        corpus: `data.tables.columns.CORPUS_COLUMNS`.
        num: Number of centers for "train" and for "validation".
        validation_fraction: Fraction of the slides, if the corpus has no split.
        seed: Seed of the split and the centers.
        skip_bad_slides: Continue without unusable slides; the third table lists them.
        processes: Slides read in parallel.

    Returns:
        `SLIDE_COLUMNS`, `CENTER_COLUMNS`, and the skipped slides with columns `slide_id`, `problem`.

    Raises:
        InputError: Slides are unusable and `skip_bad_slides` is not set, a split has no slide, or the tissue is too
            small for the requested centers.
    """
    most = max(1, _SURPLUS * max(num.values()))
    fair = min(most, 64 + _SURPLUS * -(-sum(num.values()) // len(corpus)))
    surveys = list(_survey(corpus, fair, seed, placement, processes))
    bad = pd.DataFrame(
        [(s.slide_id, s.problem) for s in surveys if s.problem], columns=["slide_id", "problem"]
    )
    if len(bad) and not skip_bad_slides:
        raise InputError(_refusal(bad, len(corpus)))
    good = [s for s in surveys if not s.problem]
    table = corpus[corpus["slide_id"].isin([s.slide_id for s in good])].reset_index(drop=True)
    if table.empty:
        raise InputError(_refusal(bad, len(corpus)))
    if (table["split"] == "").any():
        table["split"] = split_slides(table, validation_fraction, generator(seed, "split"))
    check_patients_apart(table)
    slides = _slides_table(table, good)
    parts = []
    for split, wanted in num.items():
        of_split = table["split"].to_numpy() == split
        offers = [s for s, is_of_split in zip(good, of_split, strict=True) if is_of_split]
        if fair < wanted and sum(s.num_centers for s in offers) < wanted:  # few slides, which can offer more
            offers = list(_survey(table[of_split], wanted, seed, placement, processes))
        parts.append(_take(offers, split, wanted))
    return slides, pd.concat(parts, ignore_index=True), bad


def _survey(
    corpus: pd.DataFrame, num: int, seed: int, placement: Placement, processes: int
) -> Iterator[SlideSurvey]:
    work = partial(survey_slide, num=num, seed=seed, placement=placement)
    mpps = [None if np.isnan(mpp) else float(mpp) for mpp in corpus["mpp"]]
    jobs = (
        list(corpus["slide_id"]),
        [Path(path) for path in corpus["path"]],
        mpps,
        list(corpus["coordinates"]),
        list(corpus["outlines"]),
    )
    yield from map_over_processes(work, *jobs, processes=processes, title="slides", unit="slide")


def _slides_table(table: pd.DataFrame, good: list[SlideSurvey]) -> pd.DataFrame:
    slides = table.assign(
        mpp=[s.mpp for s in good],
        height_px=[s.size_yx[0] for s in good],
        width_px=[s.size_yx[1] for s in good],
        tissue_fraction=[round(s.tissue_fraction, 4) for s in good],
        content=[s.content for s in good],
    )
    return slides[list(SLIDE_COLUMNS)]


def _take(offers: list[SlideSurvey], split: str, wanted: int) -> pd.DataFrame:
    if not offers:
        raise InputError(
            f"no slide is in the {split} split. Fix: write {split} into a row's column split if your table fills it; "
            "else add slides, or change index.validation_fraction."
        )
    limits = np.array([s.num_centers for s in offers])
    if limits.sum() < wanted:
        raise InputError(
            f"the tissue of the {len(offers)} {split} slides holds {limits.sum()} samples, {wanted} are requested. "
            f"Fix: lower num_{split}, add slides, or lower index.min_tissue_fraction."
        )
    parts = [
        pd.DataFrame(
            {"slide_id": s.slide_id, "y": s.centers_yx[:k, 0], "x": s.centers_yx[:k, 1], "split": split}
        )
        for s, k in zip(offers, even_quotas(limits, wanted), strict=True)
        if s.centers_yx is not None
    ]
    # Slides alternate, so that the first batch in order already covers all slides.
    return pd.concat(parts).sort_index(kind="stable")[list(CENTER_COLUMNS)]


def _refusal(bad: pd.DataFrame, num_slides: int) -> str:
    return (
        f"{len(bad)} of {num_slides} slides to pretrain on cannot be used: {first_five(bad['problem'].tolist())}. "
        "Fix: mend them, or leave them out by index.skip_bad_slides: true."
    )
