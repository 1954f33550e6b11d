"""A simulated NCT-CRC-HE: nine tissue classes of the large bowel in patches of 224 px, with separate test patients."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from histo_monai.data.simulated.datasets.dataset import SimulatedDataset, SimulatedSize
from histo_monai.data.simulated.jobs import Job, run_jobs
from histo_monai.data.simulated.plans.bowel import CLASSES, Bowel, patch_center_um
from histo_monai.data.simulated.raster.lattice import derive
from histo_monai.data.simulated.raster.pyramid import write_patch
from histo_monai.data.simulated.tissue.render import render
from histo_monai.data.simulated.tissue.world import World

PATCH_PX, PATCH_MPP = 224, 0.5
PATCHES_PER_PATIENT = 45
TRAIN, TEST = "NCT-CRC-HE-100K", "CRC-VAL-HE-7K"
TEST_FRACTION = 0.2
MIN_MALIGNANT = 0.25
MAX_MOVES, MAX_PATCHES_PER_CLASS = 12, 101
_LETTERS = "ACDEFGHIKLMNPQRSTVWY"


@dataclass(frozen=True)
class Patient:
    """One patient: some patches of every class.

    Attributes:
        folder: Folder of the training set or of the test set.
        seed: Seed of all random decisions.
        patches: Class of each patch, and its number among the patient's patches of this class.
    """

    folder: str
    seed: int
    patches: tuple[tuple[str, int], ...]


def patients(seed: int, num_patches: int) -> list[Patient]:
    """All patients, with classes as even as possible, and a fifth more for the test set."""
    found: list[Patient] = []
    for folder, count in (
        (TRAIN, num_patches),
        (TEST, max(len(CLASSES), round(TEST_FRACTION * num_patches))),
    ):
        num_patients = max(2, round(count / PATCHES_PER_PATIENT))
        rows: list[list[tuple[str, int]]] = [[] for _ in range(num_patients)]
        for index in range(count):
            label, number = CLASSES[index % len(CLASSES)], index // len(CLASSES)
            # Numbers restart for each patient: places stay near the origin, where float32 is exact.
            rows[number % num_patients].append((label, number // num_patients))
        found += [
            Patient(folder, derive(seed, folder, i), tuple(patches))
            for i, patches in enumerate(rows)
            if patches
        ]
    return found


def kather_jobs(root: Path, seed: int, num_patches: int) -> list[Job]:
    """One job per patient."""
    return [(_write_patient, (root, patient)) for patient in patients(seed, num_patches)]


def patch_name(patient: Patient, label: str, number: int) -> str:
    """CLASS-XXXXXXXX.tif, as published; the eight letters do not identify the patient."""
    code = derive(patient.seed, label, number)
    letters = [_LETTERS[code // len(_LETTERS) ** k % len(_LETTERS)] for k in range(8)]
    return f"{label}-{''.join(letters)}.tif"


def render_patches(patient: Patient) -> list[NDArray[np.uint8]]:
    """The patient's patches in their order, each (224, 224, 3) uint8."""
    world = World.from_seed(patient.seed, PATCH_MPP, Bowel(patient.seed))
    return [_render_patch(world, label, number) for label, number in patient.patches]


def _render_patch(world: World, label: str, number: int) -> NDArray[np.uint8]:
    """A patch of a class; a tumor patch is moved until at least a quarter of it is malignant."""
    for attempt in range(MAX_MOVES):
        center = patch_center_um(label, number + attempt * MAX_PATCHES_PER_CLASS)
        top, left = (int(c / PATCH_MPP) - PATCH_PX // 2 for c in center)
        view = render(world, top, left, PATCH_PX, PATCH_PX)
        if label != "TUM" or view.malignant.mean() >= MIN_MALIGNANT:
            break
    return view.image


def _write_patient(root: Path, patient: Patient) -> None:
    for (label, number), image in zip(patient.patches, render_patches(patient), strict=True):
        write_patch(root / patient.folder / label / patch_name(patient, label, number), image, PATCH_MPP)


def _write(root: Path, size: SimulatedSize, processes: int) -> None:
    run_jobs(kather_jobs(root, size.seed, size.num_patches), processes, "kather patients")


SIMULATED = SimulatedDataset("kather", _write, least_patches=9)
