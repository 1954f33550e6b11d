"""Frozen features of all tissue of simulated Camelyon16 datasets: 36 training slides and 24 test slides each.

Slides have 1 µm/px and patches 128 px without gaps, so the patches of a slide are a complete map.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from histo_monai.data.simulated.datasets.camelyon16 import SlideSpec, make_world, slide_specs
from histo_monai.data.simulated.tissue.render import render_strips
from histo_monai.finetuning.depth import depth_features
from histo_monai.models.task_model import from_encoder
from histo_monai.training.device import channels_last
from histo_monai.training.task import Task
from histo_monai.utils.storage import whole_file

from .encoders import SMALL, write_encoder
from .simulated import PATCH_PX, tissue_cells

NUM_SLIDES, NUM_TEST_SLIDES, MPP = 36, 24, 1.0
BATCH = 32


@dataclass(frozen=True)
class Simulated:
    """Patches of one simulated dataset; a slide's patches are adjacent rows.

    Attributes:
        features: depth -> (n, D), float32.
        slides: slide of each patch, (n,).
        cells: row and column of each patch, (n, 2).
        is_tumor: whether most of the patch is tumor, (n,).
        diagnoses: whether the slide has a metastasis, (slides,).
    """

    features: dict[str, NDArray[np.float32]]
    slides: NDArray[np.int64]
    cells: NDArray[np.int64]
    is_tumor: NDArray[np.bool_]
    diagnoses: NDArray[np.bool_]


def read_simulated(cache: Path, seed: int, side_px: int) -> Simulated:
    """Dataset of a seed with slides of `side_px`; encoded on first use, five minutes of one core for 2048 px."""
    # Name of caches that exist.
    path = cache / f"cohort-{side_px}-{seed}.npz"
    if not path.exists():
        _write(path, cache, seed, side_px)
    with np.load(path, allow_pickle=False) as arrays:
        other = {name: arrays[name] for name in ("slides", "cells", "is_tumor", "diagnoses")}
        depths = [name for name in arrays if name not in other]
        return Simulated({name: arrays[name].astype(np.float32) for name in depths}, **other)


def _write(path: Path, cache: Path, seed: int, side_px: int) -> None:
    specs = list(slide_specs(seed, NUM_SLIDES, NUM_TEST_SLIDES, side_px, MPP).values())
    found = [tissue_cells(spec) for spec in specs]
    encoder = from_encoder(write_encoder(SMALL, cache), 1)[0].eval().encoder
    channels_last(encoder)  # a third faster on a CPU
    task = Task(None, patch_px=PATCH_PX, device=torch.device("cpu"))
    features = depth_features(encoder, task, _batches(specs, [cells for cells, _ in found]))
    arrays: dict[str, Any] = {name: rows.astype(np.float16) for name, rows in features.items()}
    arrays["slides"] = np.repeat(np.arange(len(specs)), [len(cells) for cells, _ in found])
    arrays["cells"] = np.concatenate([cells for cells, _ in found])
    arrays["is_tumor"] = np.concatenate([is_tumor for _, is_tumor in found])
    arrays["diagnoses"] = np.array([spec.kind != "normal" for spec in specs])
    with whole_file(path) as draft, draft.open("wb") as file:
        np.savez(file, **arrays)


def _batches(specs: list[SlideSpec], cells: list[NDArray[np.intp]]) -> Iterator[tuple[torch.Tensor, None]]:
    """Patches of each slide, (b, 1, 3, P, P), uint8."""
    for spec, places in zip(specs, cells, strict=True):
        world, _ = make_world(spec)
        slide = np.concatenate(list(render_strips(world, spec.side_px, spec.side_px)))
        num = spec.side_px // PATCH_PX
        tiles = slide.reshape(num, PATCH_PX, num, PATCH_PX, 3).transpose(0, 2, 4, 1, 3)
        patches = torch.from_numpy(np.ascontiguousarray(tiles[places[:, 0], places[:, 1]]))
        yield from ((batch[:, None], None) for batch in patches.split(BATCH))
