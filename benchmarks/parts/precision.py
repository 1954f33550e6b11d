"""Steps and maps in bfloat16 against float32, on one core of a processor that computes it; the same patches."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from heatmap import CLASSES, forward, patch_models
from read_triples import make_slide
from stepping import SLIDE_PX, Size, Stepping, pretext_stepping, student_stepping
from turns import OURS, PEER, is_quick, note, row_of, take_turns

from histo_monai.models.encoder import build_encoder
from histo_monai.models.task_model import TaskModel
from histo_monai.pipeline.doctor.machine import has_bfloat16
from histo_monai.training.device import precision
from histo_monai.utils.process.memory import keep_freed_memory
from histo_monai.utils.process.threads import decode_with

CPU = torch.device("cpu")
PRECISIONS = {OURS: "bfloat16", PEER: "float32"}
PATCHES = {64: 64, 256: 8}
"""Side -> images of a step."""


def main() -> None:
    if not has_bfloat16():
        note("this processor does not say that it computes bfloat16")
        return
    keep_freed_memory()
    decode_with(1)
    torch.set_num_threads(1)
    rounds = 3 if is_quick() else 7
    with tempfile.TemporaryDirectory() as folder:
        path = make_slide(Path(folder) / "synthetic.tif", SLIDE_PX)
        for patch_px, num in PATCHES.items():
            size, of_student = Size(patch_px, num // 4, CPU, 0), Size(patch_px, num // 8, CPU, 0)
            ways: dict[str, Callable[[], Callable[[], object]]] = {
                "step of rsp": partial(_step, pretext_stepping, path, "rsp", size),
                "step of moco": partial(_step, pretext_stepping, path, "moco", size),
                "step of neighbors": partial(
                    _step, student_stepping, path, "spatial_neighbors", of_student, is_cached=True, num_read=1
                ),
                "network of a map": partial(mapping, patch_px, num),
            }
            for name, made in ways.items():
                compare(f"{name}, {patch_px} px", rounds, made)


def _step(made: Callable[..., Stepping], *arguments: Any, **named: Any) -> Callable[[], object]:
    return made(*arguments, **named).whole


def compare(what: str, rounds: int, made: Callable[[], Callable[[], object]]) -> None:
    """A row: what is made and called in bfloat16, and in float32."""
    ways = {}
    for name, asked in PRECISIONS.items():
        os.environ["HISTO_MONAI_PRECISION"] = asked
        ways[name] = in_precision(asked, made())
    times = take_turns(ways, rounds)
    row_of(f"{what}, bfloat16", times, peer_is="float32").write()


def in_precision(asked: str, call: Callable[[], object]) -> Callable[[], object]:
    """The same call, in a precision."""

    def run() -> object:
        os.environ["HISTO_MONAI_PRECISION"] = asked
        return call()

    return run


def mapping(patch_px: int, num: int) -> Callable[[], object]:
    """A pass of the folded network."""
    torch.manual_seed(0)
    network = patch_models(TaskModel(build_encoder(), "linear", len(CLASSES)).eval()).network
    ready = torch.rand(num, 3, patch_px, patch_px).contiguous(memory_format=torch.channels_last)

    def run() -> None:
        with precision(CPU):
            forward(network, ready, num)

    return run


if __name__ == "__main__":
    main()
