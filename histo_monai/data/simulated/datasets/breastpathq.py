"""A simulated BreastPathQ: patches scored by their malignant area, two raters on the test set, Aperio slides."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from histo_monai.data.simulated.datasets.dataset import SimulatedDataset, SimulatedSize
from histo_monai.data.simulated.jobs import Job, run_jobs
from histo_monai.data.simulated.plans.breast import Breast
from histo_monai.data.simulated.raster.lattice import Grid, derive
from histo_monai.data.simulated.raster.pyramid import write_patch, write_pyramid
from histo_monai.data.simulated.tissue.render import render, render_strips
from histo_monai.data.simulated.tissue.world import World

PATCH_PX, PATCH_MPP = 512, 0.5
PATCHES_PER_PATIENT = 12
GRID = 20  # Raters score in steps of 1/20.
# Bias, gain and spread of two raters: A scores slightly high, B slightly low and with more spread.
RATERS = ((0.02, 1.02, 0.055), (-0.03, 0.94, 0.075))
Split = Literal["train", "validation", "test"]
FOLDERS: dict[Split, str] = {
    "train": "breastpathq/datasets/train",
    "validation": "breastpathq/datasets/validation",
    "test": "breastpathq-test/test_patches",
}


@dataclass(frozen=True)
class Patient:
    """One patient of the labeled part: a row of patches.

    Attributes:
        slide: Number of the slide, which begins the patches' names.
        seed: Seed of all random decisions.
        split: train, validation or test.
        num_patches: Number of patches.
    """

    slide: int
    seed: int
    split: Split
    num_patches: int


@dataclass(frozen=True)
class ScoredPatch:
    """A written patch: its slide and number, and its exact fraction of malignant epithelium, 0..1."""

    slide: int
    rid: int
    score: float
    split: Split


def patients(seed: int, num_patches: int) -> list[Patient]:
    """All patients of the labeled part; 70, 10 and 20 % of the patches in train, validation and test."""
    rng = np.random.default_rng(derive(seed, "patients"))
    validation, test = max(1, round(0.1 * num_patches)), max(2, round(0.2 * num_patches))
    wanted: dict[Split, int] = {
        "train": num_patches - validation - test,
        "validation": validation,
        "test": test,
    }
    numbers = iter((90000 + rng.permutation(10000)[: num_patches + 3]).tolist())
    found: list[Patient] = []
    for split, count in wanted.items():
        # At least two patients for two or more patches, so that no split has a single stain.
        per_patient = max(1, min(PATCHES_PER_PATIENT, count // 3))
        while count > 0:
            take = min(per_patient, count)
            slide = next(numbers)
            found.append(Patient(slide, derive(seed, split, slide), split, take))
            count -= take
    return found


def patch_corners_px(patient: Patient) -> list[tuple[int, int]]:
    """Top left corners (y, x) of the patient's patches: no two overlap, malignancy spread over 0..1.

    Half of the patches lie in areas with most tumor, a quarter in areas with most benign tissue that is as dark as
    tumor, and a quarter anywhere. So dark purple alone does not mean a high score.
    """
    rng = np.random.default_rng(derive(patient.seed, "where"))
    plan = Breast(patient.seed)
    step = PATCH_PX * PATCH_MPP
    cells = rng.permutation(144)[: 6 * patient.num_patches]
    fractions = np.array([_tissue_fractions(plan, int(c) // 12 * step, int(c) % 12 * step) for c in cells])
    half, quarter = patient.num_patches // 2, patient.num_patches // 4
    by_tumor = np.argsort(-fractions[:, 0], kind="stable")
    malignant, rest = by_tumor[: 2 * half : 2], by_tumor[2 * half :]
    rest = rest[np.argsort(-fractions[rest, 1], kind="stable")]
    anywhere = rng.permutation(rest[quarter:])[: patient.num_patches - half - quarter]
    picked = rng.permutation(np.concatenate([malignant, rest[:quarter], anywhere]))
    return [(int(cells[i]) // 12 * PATCH_PX, int(cells[i]) % 12 * PATCH_PX) for i in picked]


def _tissue_fractions(plan: Breast, y_um: float, x_um: float) -> tuple[float, float]:
    """Mean weight of tumor and of dark benign tissue in a patch."""
    regions = plan.regions(Grid(y_um, x_um, 32.0, 8, 8))
    dark = regions["lobule"] + regions["lymphoid"] + 0.5 * regions["infiltrate"]
    return float(regions["tumour"].mean()), float(dark.mean())


def breastpathq_jobs(
    root: Path, seed: int, num_slides: int, num_patches: int, side_px: int, mpp: float
) -> list[Job]:
    """One job per patient of the labeled part and per slide for pretraining."""
    jobs: list[Job] = [(_write_patches, (root, patient)) for patient in patients(seed, num_patches)]
    for index in range(num_slides):
        path = root / "Post-NAT-BRCA" / f"{80001 + index}.svs"
        jobs.append((_write_slide, (path, derive(seed, "slide", index), side_px, mpp)))
    return jobs


def _write_patches(root: Path, patient: Patient) -> list[ScoredPatch]:
    world = World.from_seed(patient.seed, PATCH_MPP, Breast(patient.seed))
    written = []
    for rid, (top, left) in enumerate(patch_corners_px(patient), start=1):
        view = render(world, top, left, PATCH_PX, PATCH_PX)
        write_patch(root / FOLDERS[patient.split] / f"{patient.slide}_{rid}.tif", view.image, PATCH_MPP)
        written.append(ScoredPatch(patient.slide, rid, float(view.malignant.mean()), patient.split))
    return written


def _write_slide(path: Path, seed: int, side_px: int, mpp: float) -> list[ScoredPatch]:
    world = World.from_seed(seed, mpp, Breast(seed, (side_px * mpp, side_px * mpp)))
    power = round(10 / mpp)
    write_pyramid(
        path,
        render_strips(world, side_px, side_px),
        (side_px, side_px),
        mpp=mpp,
        factor=4,
        quality=world.style.jpeg_quality,
        description=(
            f"Aperio Image Library v11.2.1 \r\n{side_px}x{side_px} [0,0 {side_px}x{side_px}] (256x256) "
            f"JPEG/RGB Q={world.style.jpeg_quality}|AppMag = {power}|MPP = {mpp:.4f}"
        ),
    )
    return []


def write_labels(root: Path, seed: int, results: list[Any]) -> None:
    """The four tables of the challenge: labels of train, validation and test, and the patients of the test set."""
    rows = [row for result in results for row in result]
    datasets, test = root / "breastpathq" / "datasets", root / "breastpathq-test"
    for split, name in (("train", "train_labels.csv"), ("validation", "val_labels.csv")):
        scored = [f"{r.slide},{r.rid},{r.score:.4f}" for r in rows if r.split == split]
        _write_csv(datasets / name, "slide,rid,y", scored)
    rng = np.random.default_rng(derive(seed, "raters"))
    rated = []
    for row in (r for r in rows if r.split == "test"):
        first, second = (rate(row.score, rater, rng) for rater in RATERS)
        rated.append(f"{row.slide},{row.rid},{first:.2f},{second:.2f}")
    _write_csv(test / "test_labels.csv", "slide,rid,p1,p2", rated)
    slides = sorted({r.slide for r in rows if r.split == "test"})
    _write_csv(
        test / "test_patient_ids.csv", "slide,patient_id", [f"{s},{i + 1}" for i, s in enumerate(slides)]
    )


def rate(score: float, rater: tuple[float, float, float], rng: np.random.Generator) -> float:
    """One rater's score for a true score: biased, with more noise for medium scores, in steps of 0.05."""
    bias, gain, spread = rater
    steadiness = 0.15 + 2 * np.sqrt(score * (1 - score))
    # Raters score a patch without tumor as 0.
    read = 0.0 if score == 0 else gain * score + bias + rng.normal(0, spread * steadiness)
    return float(np.clip(np.rint(read * GRID), 0, GRID) / GRID)


def _write_csv(path: Path, header: str, rows: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *rows, ""]), encoding="utf-8")


def _write(root: Path, size: SimulatedSize, processes: int) -> None:
    jobs = breastpathq_jobs(
        root, size.seed, size.num_slides, size.num_patches, size.slide_side_px, size.slide_mpp
    )
    write_labels(root, size.seed, run_jobs(jobs, processes, "breastpathq patients and slides"))


SIMULATED = SimulatedDataset("breastpathq", _write, least_patches=10)
