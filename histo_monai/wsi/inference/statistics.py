"""Encoder with batch-norm statistics of unaugmented tissue, as in fine-tuned models."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch.optim.swa_utils import update_bn

from histo_monai.data.loaders.pixels import LabeledPatches
from histo_monai.models.checkpoint import load_model, save_model
from histo_monai.models.task_model import load_encoder
from histo_monai.slides import open_slide
from histo_monai.slides.tiles.blocks import CellBlocks
from histo_monai.training.device import precision, to_device
from histo_monai.training.ranks import note_step
from histo_monai.utils.randomness import generator
from histo_monai.utils.ranks import this_rank, wait_for_ranks
from histo_monai.wsi.inference.jobs import SlideJob
from histo_monai.wsi.inference.models import MapPlan
from histo_monai.wsi.inference.stream import SlidePatches

_LOG = logging.getLogger(__name__)

BATCHNORM = "batchnorm"
"""Description key of encoders with recomputed statistics."""
MADE_FROM = "statistics_sha256"
"""Description key: digest of all that decides the statistics."""
_FEWEST = 2
"""Minimum number of patches for a variance."""


def write_adapted(
    device: torch.device,
    source: Path,
    target: Path,
    jobs: Sequence[SlideJob],
    plan: MapPlan,
    num: int,
    seed: int,
    made_from: str = "",
) -> None:
    """Write an encoder with batch-norm statistics of unaugmented tissue and unchanged weights.

    Pretraining leaves statistics of augmented views. Process 0 writes, the others wait.

    Args:
        target: new file; its description states the numbers of patches and slides.
        jobs: slides with about equal numbers of patches; labels are not used.
        num: maximum number of patches.
        made_from: digest of all that decides the statistics, for the description.

    Raises:
        SlideError: a slide cannot be read.
        InputError: the encoder cannot be used.
    """
    if this_rank() == 0:
        patches, num_slides = _tissue(jobs, plan, num, seed)
        about: dict[str, float] = {"num_slides": num_slides, "mpp": plan.mpp}
        _write(device, source, target, patches, about, plan.batch_size, made_from)
    wait_for_ranks()


def write_adapted_to_rows(
    device: torch.device,
    source: Path,
    target: Path,
    rows: pd.DataFrame,
    patch_px: int,
    batch_size: int,
    num: int,
    seed: int,
    made_from: str = "",
) -> None:
    """Write an encoder with batch-norm statistics of up to `num` patches of a table, ordered by patch name.

    Raises:
        InputError: the encoder or a patch cannot be used.
    """
    if this_rank() == 0:
        ordered = rows.sort_values("patch_id", kind="stable", ignore_index=True)
        mixed = generator(seed, "statistics", "patches").permutation(len(ordered))[:num]
        shown = ordered.iloc[mixed].reset_index(drop=True)
        reader = LabeledPatches(shown, patch_px=patch_px, max_cache_bytes=0)
        parts = [torch.empty(0, 3, patch_px, patch_px, dtype=torch.uint8)]
        for first in range(0, len(shown), batch_size):
            some = range(first, min(first + batch_size, len(shown)))
            parts.append(reader.__getitems__(some)[0].squeeze(1))
            note_step()
        about: dict[str, float] = {"num_slides": int(shown["slide_id"].nunique())}
        _write(device, source, target, torch.cat(parts), about, batch_size, made_from)
    wait_for_ranks()


def _write(
    device: torch.device,
    source: Path,
    target: Path,
    patches: torch.Tensor,
    about: Mapping[str, float],
    batch_size: int,
    made_from: str,
) -> None:
    encoder, _ = load_encoder(source)
    if len(patches) < _FEWEST:
        _LOG.warning("features: encoder=%s without tissue: batch-norm statistics unchanged", source)
        patches, about = patches[:0], {**about, "num_slides": 0}
    else:
        to_device(encoder, device)
        with precision(device):
            update_bn(_batches(patches, batch_size, device), encoder)
    state, description = load_model(source)
    state |= {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
    target.parent.mkdir(parents=True, exist_ok=True)
    known = {MADE_FROM: made_from} if made_from else {}
    save_model(target, state, {**description, BATCHNORM: {"num_patches": len(patches), **about}, **known})


def _tissue(jobs: Sequence[SlideJob], plan: MapPlan, num: int, seed: int) -> tuple[torch.Tensor, int]:
    """Patches (n, 3, P, P), uint8, of all slides in random order; number of slides."""
    order = generator(seed, "statistics", "slides").permutation(len(jobs))
    chosen = [jobs[number] for number in order[:num]]
    parts = [torch.empty(0, 3, plan.patch_px, plan.patch_px, dtype=torch.uint8)]
    for job in chosen:
        found = SlidePatches.find(job.path, job.mpp, plan, job.outlines)
        random = generator(seed, "statistics", job.slide_id)
        some = np.sort(random.permutation(len(found.cells))[: -(-num // len(chosen))])
        with open_slide(job.path, job.mpp) as slide:
            blocks = CellBlocks(slide, found.grid, found.cells[some], patch_px=plan.patch_px, mpp=plan.mpp)
        parts += [torch.from_numpy(blocks[number][0]) for number in range(len(blocks))]
        blocks.close()
        note_step()
    patches = torch.cat(parts)
    mixed = generator(seed, "statistics", "patches").permutation(len(patches))[:num]
    return patches[mixed], len(chosen)


def _batches(patches: torch.Tensor, size: int, device: torch.device) -> Iterator[torch.Tensor]:
    """Full batches, 0..1, so that the mean of batch variances is the variance."""
    size = min(size, len(patches))
    for first in range(0, len(patches) - size + 1, size):
        batch = patches[first : first + size].to(device)
        yield batch.to(torch.float32, memory_format=torch.channels_last) / 255
        note_step()
