"""A simulated Camelyon16: whole slides of lymph nodes, half of them with outlined metastases."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histo_monai.data.simulated.datasets.dataset import SimulatedDataset, SimulatedSize
from histo_monai.data.simulated.jobs import Job, run_jobs
from histo_monai.data.simulated.plans.lesions import Lesion, rasterize
from histo_monai.data.simulated.plans.lymph_node import LymphNode, random_metastases
from histo_monai.data.simulated.raster.lattice import derive
from histo_monai.data.simulated.raster.pyramid import write_pyramid
from histo_monai.data.simulated.tissue.render import render_strips
from histo_monai.data.simulated.tissue.world import World
from histo_monai.slides.annotations import Region, write_asap_xml


@dataclass(frozen=True)
class SlideSpec:
    """One slide of the simulated dataset.

    Attributes:
        name: Stem of its file names.
        seed: Seed of all random decisions on the slide.
        kind: normal, macro or micro.
        hole: Whether its first lesion has a hole of normal tissue.
        side_px: Height and width.
        mpp: µm per px of the finest level.
    """

    name: str
    seed: int
    kind: str
    hole: bool
    side_px: int
    mpp: float


def make_world(spec: SlideSpec) -> tuple[World, list[Lesion]]:
    """The slide and its metastases; the rendering follows their outlines."""
    size_um = (spec.side_px * spec.mpp, spec.side_px * spec.mpp)
    lesions: list[Lesion] = []
    if spec.kind != "normal":
        rng = np.random.default_rng(derive(spec.seed, "lesions"))
        lesions = random_metastases(
            LymphNode(spec.seed, size_um), rng, _diameters(spec.kind, size_um[0], rng), spec.hole
        )
    return World.from_seed(spec.seed, spec.mpp, LymphNode(spec.seed, size_um, lesions)), lesions


def _diameters(kind: str, side_um: float, rng: np.random.Generator) -> list[float]:
    """Mean diameters of the metastases; on slides too small for millimeters they shrink with the slide."""
    if kind == "macro":
        first = float(np.clip(rng.uniform(0.38, 0.55) * side_um, 300, 4000))
        return [first, *(rng.uniform(0.10, 0.22, int(rng.integers(0, 3))) * min(side_um, 5000))]
    return list(np.clip(rng.uniform(0.14, 0.24, int(rng.integers(1, 3))) * side_um, 180, 1500))


def lesion_mask(spec: SlideSpec, downsample: int) -> NDArray[np.bool_]:
    """The exact tumor mask of a slide on a raster of `downsample` level-0 pixels; shape (side, side), bool."""
    side = -(-spec.side_px // downsample)
    return rasterize(make_world(spec)[1], spec.mpp * downsample, side, side)


def lesion_regions(spec: SlideSpec) -> list[Region]:
    """The metastases of a slide as its annotation holds them: class Tumor, level-0 pixels with four decimals."""
    outlines = [(lesion.exterior, *lesion.holes) for lesion in make_world(spec)[1]]
    pixels = [[np.round(outline / spec.mpp, 4) for outline in some] for some in outlines]
    return [Region(exterior, tuple(holes), "Tumor") for exterior, *holes in pixels]


def slide_specs(
    seed: int, num_slides: int, num_test_slides: int, side_px: int, mpp: float
) -> dict[str, SlideSpec]:
    """All slides of a simulated dataset by their path below the dataset's folder."""
    specs: dict[str, SlideSpec] = {}
    for index in range(num_slides):
        kind = ("normal", "macro", "normal", "micro")[index % 4]
        group, number = ("normal" if kind == "normal" else "tumor"), index // 2 + 1
        name = f"{group}_{number:03d}"
        # The first tumor slide has the hole, so every dataset with a tumor slide has one.
        spec = SlideSpec(name, derive(seed, "train", index), kind, index % 8 == 1, side_px, mpp)
        specs[f"training/{group}/{name}.tif"] = spec
    for index in range(num_test_slides):
        kind = ("macro", "normal", "micro", "normal")[index % 4]
        name = f"test_{index + 1:03d}"
        specs[f"testing/images/{name}.tif"] = SlideSpec(
            name, derive(seed, "test", index), kind, False, side_px, mpp
        )
    return specs


def camelyon16_jobs(
    root: Path, seed: int, num_slides: int, num_test_slides: int, side_px: int, mpp: float
) -> list[Job]:
    """One job per slide, which writes the slide and the annotations of its lesions."""
    specs = slide_specs(seed, num_slides, num_test_slides, side_px, mpp)
    return [(_write_slide, (root / path, spec)) for path, spec in specs.items()]


def _write_slide(path: Path, spec: SlideSpec) -> tuple[str, str, float]:
    world, lesions = make_world(spec)
    if lesions:
        folder = path.parent.parent / "lesion_annotations"
        write_asap_xml(folder / f"{spec.name}.xml", lesion_regions(spec))
    write_pyramid(
        path,
        render_strips(world, spec.side_px, spec.side_px),
        (spec.side_px, spec.side_px),
        mpp=spec.mpp,
        quality=world.style.jpeg_quality,
    )
    return spec.name, spec.kind, max((lesion.diameter_um for lesion in lesions), default=0.0)


def write_reference(root: Path, results: list[Any]) -> None:
    """testing/reference.csv: name, class, type and size of the largest metastasis; no header, as published."""
    rows = []
    for name, kind, _ in results:
        if name.startswith("test_"):
            rows.append(
                f"{name},Normal,None,None" if kind == "normal" else f"{name},Tumor,IDC,{kind.capitalize()}"
            )
    path = root / "testing" / "reference.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*rows, ""]), encoding="utf-8")


def _write(root: Path, size: SimulatedSize, processes: int) -> None:
    jobs = camelyon16_jobs(
        root, size.seed, size.num_slides, size.num_test_slides, size.slide_side_px, size.slide_mpp
    )
    write_reference(root, run_jobs(jobs, processes, "camelyon16 slides"))


SIMULATED = SimulatedDataset("camelyon16", _write, least_slides=2)
