"""Processes of tests: forks of a server that has imported what they need, for an import costs more than most work."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from typing import Any

import ignite.distributed as idist
import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes

from histo_monai.training.ranks import run_in_ranks

_CPU = torch.device("cpu")
_LIBRARIES = ("pytest", "timm.layers")
_MODULES = (
    *("models.batchnorm", "pretraining.moco", "pretraining.rsp", "pretraining.vae"),
    *("pipeline.cli", "pipeline.finetuning", "pipeline.teaching"),
    *(
        f"pipeline.stages.{name}"
        for name in ("consistency", "features", "finetune", "heatmap", "index", "pretrain")
    ),
)


def server() -> ForkServerContext:
    """The one server of this process, which computes nothing and has no threads; it starts with the first fork."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_LIBRARIES, *preloaded()])
    return context


def preloaded() -> list[str]:
    """Modules of the package that the server imports; a name that is none it would pass over in silence."""
    return [f"histo_monai.{name}" for name in _MODULES]


def fork_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let stages start their ranks out of the server: what ranks compute does not depend on how they start."""
    server()
    monkeypatch.setitem(run_in_ranks.__kwdefaults__, "start", "forkserver")


def in_two_ranks(work: Callable[..., None], *arguments: Any, device: torch.device = _CPU) -> None:
    """Call `work(device, *arguments)`, a function of a module, in two processes.

    On a GPU both have that one and talk by gloo; `run_in_ranks` takes NCCL, which refuses two processes on one GPU.
    """
    if device.type == "cpu":
        server()
        run_in_ranks(work, *arguments, device=device, ranks=2, timeout_s=600, start="forkserver")
        return
    with tempfile.TemporaryDirectory() as folder:
        start_processes(
            _in_gloo, (device, f"file://{folder}/ranks", work, arguments), nprocs=2, start_method="spawn"
        )


def _in_gloo(
    rank: int, device: torch.device, meet: str, work: Callable[..., None], arguments: tuple[Any, ...]
) -> None:
    torch.cuda.set_device(device)
    os.environ["LOCAL_RANK"] = str(rank)  # else Ignite gathers names of hosts on the GPU, which gloo cannot
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=2)
    idist.sync()
    work(device, *arguments)
    dist.destroy_process_group()
