"""Processes of tests: forks of a server that has imported what they need, for an import costs more than most work."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from typing import Any

import torch

from histo_monai.engines.ranks import run_in_ranks

_LIBRARIES = ("pytest", "timm.layers")
_ROOMS = (
    *(
        "engines.heatmap",
        "engines.pretrain",
        "networks.batchnorm",
        "pretext.moco.method",
        "pretext.rsp.method",
    ),
    *("pretext.vae.method", "stages.consistency", "stages.crossfit", "stages.heatmap", "stages.pretrain"),
)


def server() -> ForkServerContext:
    """The one server of this process, which computes nothing and has no threads; it starts with the first fork."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_LIBRARIES, *(f"histo_monai.{room}" for room in _ROOMS)])
    return context


def in_two_ranks(work: Callable[..., None], *arguments: Any) -> None:
    """Call `work(device, *arguments)`, a function of a module, in two processes on the CPU."""
    server()
    run_in_ranks(work, *arguments, device=torch.device("cpu"), ranks=2, timeout_s=600, start="forkserver")
