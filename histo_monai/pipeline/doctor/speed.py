"""Speed of an encoder on this machine: encoding of patches, and a training step."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import NamedTuple

import torch

from histo_monai.finetuning.trainable import Mode, add_adapters, freeze
from histo_monai.models.encoder import Encoder, build_encoder
from histo_monai.models.encoders.published import PUBLISHED
from histo_monai.models.heads.task import LINEAR
from histo_monai.models.settings import EncoderSettings
from histo_monai.models.task_model import TaskModel
from histo_monai.training.device import precision, to_device
from histo_monai.training.prediction import single_view
from histo_monai.wsi.inference.encoding import Encoding

NUM_PATCHES = 32
LIMIT_S = 8.0
"""Time for one measurement; fewer patches are measured where `NUM_PATCHES` would take longer."""
_ANY_VALUE = 0.01
_FEWEST_IN_STEP = 2
"""Batch-norms need two patches to train."""


class Speed(NamedTuple):
    """Seconds per patch, and number of measured patches."""

    seconds: float
    num_patches: int


def shaped_encoder(settings: EncoderSettings, patch_px: int) -> Encoder:
    """Encoder of params without its file of weights; a published one is on the device "meta", without values.

    Raises:
        InputError: the name is unknown, or does not take patches of this side.
    """
    is_published = settings.name in PUBLISHED
    with (
        torch.device("meta") if is_published else nullcontext()
    ):  # Random values of UNI2-h take half a minute.
        return build_encoder(settings.name, patch_px, arguments=settings.arguments, side_px=settings.side)


def with_values(encoder: Encoder) -> Encoder:
    """Encoder with arbitrary values in place of none; time does not depend on values."""
    if not any(tensor.is_meta for tensor in encoder.parameters()):
        return encoder
    encoder.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*encoder.parameters(), *encoder.buffers()):
            tensor.fill_(_ANY_VALUE)
    return encoder


def encoding_speed(
    ready: Encoder, encoding: Encoding, *, patch_px: int, batch_size: int, device: torch.device
) -> Speed:
    """Time of all views of a patch in batches; `Encoding.features` fills small ones up, which is not counted.

    Args:
        ready: of `Encoding.ready`, on `device`.
        batch_size: patches at a time.
    """
    patches = _patches(patch_px)

    def encode(num: int) -> None:
        for first in range(0, num, batch_size):
            pixels = single_view(patches[first : min(num, first + batch_size)], patch_px, device)
            ready(pixels).float().cpu()

    with torch.inference_mode(), precision(device):
        measured = _measured(encode, fewest=1, most=NUM_PATCHES)
    return measured._replace(seconds=measured.seconds * (1 + len(encoding.views)))


def training_speed(
    encoder: Encoder, mode: Mode, *, patch_px: int, batch_size: int, device: torch.device
) -> Speed:
    """Time of forward and backward pass per patch in a mode of fine-tuning.

    Args:
        encoder: at full depth; changed.
        batch_size: most patches of a step.
    """
    model = TaskModel(encoder, LINEAR, 2)
    add_adapters(model, mode, seed=0)
    freeze(model, mode)
    to_device(model.train(), device)
    patches = _patches(patch_px)

    def step(num: int) -> None:
        with precision(device):
            loss = model(single_view(patches[:num], patch_px, device)).logsumexp(dim=1).mean()
        loss.backward()
        model.zero_grad(set_to_none=True)
        loss.item()

    most = max(_FEWEST_IN_STEP, min(batch_size, NUM_PATCHES))
    return _measured(step, fewest=_FEWEST_IN_STEP, most=most)


def _measured(work: Callable[[int], object], *, fewest: int, most: int) -> Speed:
    """Time per patch of as many patches, up to `most`, as `LIMIT_S` allows; a first call warms up."""
    first = _seconds(work, fewest) / fewest
    if 2 * fewest * first > LIMIT_S:
        return Speed(first, fewest)
    num = most
    if first * most > LIMIT_S:  # The first call also starts libraries.
        again = _seconds(work, fewest) / fewest
        num = max(fewest, min(most, int((LIMIT_S - fewest * first) / again)))
    return Speed(_seconds(work, num) / num, num)


def _seconds(work: Callable[[int], object], num: int) -> float:
    start = time.perf_counter()
    work(num)
    return time.perf_counter() - start


def _patches(patch_px: int) -> torch.Tensor:
    shape = (NUM_PATCHES, 1, 3, patch_px, patch_px)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
