"""Which decoder reads slides: `HISTO_MONAI_DECODER`, else the GPU where it can."""

from __future__ import annotations

import functools
import logging
import os

import torch

from histo_monai.data.decoding.codec import find_codec
from histo_monai.data.decoding.tile_store import TileStore
from histo_monai.utils.errors import InputError

_LOG = logging.getLogger(__name__)

VARIABLE = "HISTO_MONAI_DECODER"


def asked_decoder() -> str:
    """The value of `HISTO_MONAI_DECODER`; empty if not set.

    Raises:
        InputError: It is neither cpu nor gpu.
    """
    asked = os.environ.get(VARIABLE, "")
    if asked not in ("", "cpu", "gpu"):
        raise InputError(f"{VARIABLE}: {asked[:40]!r} is no decoder. Fix: set cpu or gpu, or remove it")
    return asked


def tile_store(device: torch.device) -> TileStore | None:
    """Tiles decoded on a device; None where the CPU decodes.

    Raises:
        InputError: `HISTO_MONAI_DECODER` is gpu and the device cannot decode, or it is neither cpu nor gpu.
    """
    asked = asked_decoder()
    if asked == "cpu":
        return None
    store, why = _found(_with_index(device))
    if store is None and asked == "gpu":
        raise InputError(f"{VARIABLE}: gpu, but {why}. Fix: set cpu, or remove it")
    return store


def decoder_line(device: torch.device) -> str:
    """What decodes slides for work on a device, and why, for `doctor`.

    Raises:
        InputError: As `tile_store`.
    """
    if asked_decoder() == "cpu":
        return f"slides are decoded by the CPU ({VARIABLE})"
    store, why = tile_store(device), _found(_with_index(device))[1]
    return f"slides are decoded by the GPU ({why})" if store else f"slides are decoded by the CPU: {why}"


def _with_index(device: torch.device) -> torch.device:
    """The device by its number, so that a process has one store for it."""
    if device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", torch.cuda.current_device())


@functools.cache
def _found(device: torch.device) -> tuple[TileStore | None, str]:
    """Store of a device, once per process, and its decoder or the reason for none."""
    if device.type != "cuda":
        return None, f"the device is {device}"
    codec, what = find_codec(device)
    _LOG.info("decoding: decoder=%s %s=%s", "gpu" if codec else "cpu", "by" if codec else "reason", what)
    return (None, what) if codec is None else (TileStore(codec, device), what)
