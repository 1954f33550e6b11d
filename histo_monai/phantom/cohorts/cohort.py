"""Writes a simulated cohort in the layout of one of the three public datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from histo_monai.errors import InputError
from histo_monai.phantom.cohorts.breastpathq import breastpathq_jobs, write_labels
from histo_monai.phantom.cohorts.camelyon16 import camelyon16_jobs, write_reference
from histo_monai.phantom.jobs import run_jobs
from histo_monai.phantom.cohorts.kather import kather_jobs

Dataset = Literal["breastpathq", "camelyon16", "kather"]
MIN_SIDE_PX, MAX_SIDE_PX = 512, 120_000
MIN_MPP, MAX_MPP = 0.2, 1.0


def write_cohort(
    root: Path,
    *,
    dataset: Dataset,
    seed: int,
    num_slides: int,
    num_test_slides: int,
    num_patches: int,
    slide_side_px: int,
    slide_mpp: float,
    processes: int,
) -> None:
    """Writes a simulated H&E cohort below `root`, in the tree that users of the real dataset have.

    The same arguments give the same bytes, whatever `processes` is (on one machine: the last bit of a float may
    differ between processor families).

    Args:
        root: Folder to write into; created when missing.
        dataset: Whose layout.
        seed: Which cohort, 0 or more.
        num_slides: Training slides; half normal, half tumour for camelyon16, for pretraining in breastpathq,
            unused by kather.
        num_test_slides: Test slides of camelyon16, half of them with tumour; unused elsewhere.
        num_patches: Labeled patches of breastpathq (train, validation and test together) or of kather's training
            folder; unused by camelyon16.
        slide_side_px: Height and width of the slides' finest level.
        slide_mpp: Its resolution, µm per px.
        processes: How many to render with.

    Raises:
        InputError: An argument is out of its range.
    """
    _check(dataset, seed, num_slides, num_test_slides, num_patches, slide_side_px, slide_mpp, processes)
    root = Path(root)
    if dataset == "camelyon16":
        jobs = camelyon16_jobs(root, seed, num_slides, num_test_slides, slide_side_px, slide_mpp)
        write_reference(root, run_jobs(jobs, processes, "camelyon16 slides"))
    elif dataset == "breastpathq":
        jobs = breastpathq_jobs(root, seed, num_slides, num_patches, slide_side_px, slide_mpp)
        write_labels(root, seed, run_jobs(jobs, processes, "breastpathq patients and slides"))
    else:
        run_jobs(kather_jobs(root, seed, num_patches), processes, "kather patients")


def _check(
    dataset: str,
    seed: int,
    slides: int,
    test_slides: int,
    patches: int,
    side_px: int,
    mpp: float,
    processes: int,
) -> None:
    if dataset not in get_args(Dataset):
        raise InputError(f"dataset: expected one of {', '.join(get_args(Dataset))}, not {dataset!r}")
    if seed < 0:
        raise InputError(f"seed: expected 0 or more, not {seed}")
    for name, value, needed in (
        ("num_slides", slides, 2 if dataset == "camelyon16" else 0),
        ("num_test_slides", test_slides, 0),
        ("num_patches", patches, {"camelyon16": 0, "breastpathq": 10, "kather": 9}[dataset]),
        ("processes", processes, 1),
    ):
        if value < needed:
            raise InputError(f"{name}: expected {needed} or more for {dataset}, not {value}")
    if not MIN_SIDE_PX <= side_px <= MAX_SIDE_PX:
        raise InputError(f"slide_side_px: expected {MIN_SIDE_PX}..{MAX_SIDE_PX}, not {side_px}")
    if not MIN_MPP <= mpp <= MAX_MPP:
        raise InputError(f"slide_mpp: expected {MIN_MPP}..{MAX_MPP} µm per px, not {mpp}")
