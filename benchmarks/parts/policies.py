"""Each augmentation policy, uint8 in memory to float32, on one core or on a GPU."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from augmentation import (
    PRETRAINING,
    albumentations_policy,
    own_policies,
    policies_at_defaults,
    tissue_like_batch,
)
from turns import LIMIT, OURS, PEER, DeviceClock, asked, is_quick, note, row_of, take_turns

from histo_monai.utils.process.memory import keep_freed_memory

PROB = 0.5


def main() -> None:
    keep_freed_memory()
    device = torch.device(asked().device)
    if device.type == "cpu":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        torch.set_num_threads(1)
    rounds = 3 if is_quick() else 11
    has_peer = device.type == "cpu" and importlib.util.find_spec("albumentations") is not None
    if device.type == "cpu" and not has_peer:
        note("albumentations is not installed (extra `bench`): no peer")
    for size_px, samples in ((64, 32), (256, 4 if is_quick() else 8 if device.type == "cpu" else 64)):
        batch = tissue_like_batch(samples, 3, size_px).to(device)
        num = samples * 3
        policies = own_policies(batch, PROB)
        views = policies_at_defaults(size_px)["MoCo, both views"][0]
        policies["MoCo, both views"] = partial(views.set_random_state(0), batch)
        for name, run in policies.items():
            ways: dict[str, Callable[[], object]] = {OURS: run, LIMIT: partial(as_floats, batch)}
            if name == PRETRAINING and has_peer:
                ways[PEER] = partial(through, albumentations_policy(size_px, PROB, "scikit-image"), batch)
            clock = time.process_time if device.type == "cpu" else DeviceClock(device)
            row_of(
                f"augmentation: {name}, {size_px} px", take_turns(ways, rounds, clock),
                peer_is="albumentations 2.0.8 with scikit-image's HED" if PEER in ways else "",
                limit_is="the same pixels as float32", per=num, unit="image",
                clock="cpu" if device.type == "cpu" else "device",
            ).write()  # fmt: skip


def as_floats(batch: torch.Tensor) -> torch.Tensor:
    """The same pixels, 0..1."""
    return batch.to(torch.float32).div_(255)


def through(policy: object, batch: torch.Tensor) -> torch.Tensor:
    """A batch through a policy of albumentations."""
    images = batch.flatten(0, 1).permute(0, 2, 3, 1).numpy()
    augmented = torch.from_numpy(np.stack([policy(np.ascontiguousarray(image)) for image in images]))  # type: ignore[operator]
    return augmented.permute(0, 3, 1, 2).to(torch.float32).div_(255).contiguous()


if __name__ == "__main__":
    main()
