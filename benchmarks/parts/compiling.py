"""Encoders by `torch.compile` in place of this package's CUDA graphs: a step's network, views ready, of every method.

A CPU has no CUDA graphs: there the encoder runs as it is. `--quick`: one pretext and one student, 32 px.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from read_triples import make_slide
from stepping import MU, SLIDE_PX, Size, Stepping, pretext_stepping, student_stepping
from steps import OF_PAPER, taught, trained
from torch import nn
from turns import OURS, PEER, DeviceClock, asked, is_time_up, note, row_of, take_turns

from histo_monai.models.encoder import Encoder
from histo_monai.utils.process.memory import keep_freed_memory


def main() -> None:
    keep_freed_memory()
    options = asked()
    device, rounds = torch.device(options.device), 2 if options.quick else 15
    if not options.paper:
        note("torch.compile is compared by benchmarks/gpu.sh")
        return
    num_methods, patch_px = (1, 32) if options.quick else (None, 256)
    with tempfile.TemporaryDirectory() as folder:
        path = make_slide(Path(folder) / "synthetic.tif", SLIDE_PX)
        for name in trained()[:num_methods]:
            if not is_time_up(f"compiled step of {name}"):
                size = Size(patch_px, 4 if options.quick else 64, device, 0)
                compare(
                    f"{name}, {size.batch_size} samples", pretext_stepping(path, name, size), size, rounds
                )
        for name in taught()[:num_methods]:
            if not is_time_up(f"compiled step of {name}"):
                size = Size(patch_px, 2 if options.quick else 8 if name == OF_PAPER else 16, device, 0)
                step = student_stepping(path, name, size, is_cached=True, num_read=0)
                compare(f"{name}, {size.batch_size} labeled, mu {MU}", step, size, rounds)


def compare(what: str, step: Stepping, size: Size, rounds: int) -> None:
    """A row: the step's network by graphs and by `torch.compile`; a note if it cannot be compiled."""
    compiled = CompiledEncoders(step.network, size.device)
    clock = DeviceClock(size.device)
    try:
        for _ in range(3):  # compiles, records
            step.alone(compiled())
    except RuntimeError as error:  # of Dynamo, Inductor and CUDA
        note(f"{what}: not compiled, {type(error).__name__}: {str(error).splitlines()[0][:200]}")
        return
    times = take_turns({OURS: step.alone, PEER: lambda: step.alone(compiled())}, rounds, clock)
    row_of(
        f"network of a step of {what}, {size.patch_px} px", times, clock=clock.name, per=size.batch_size,
        unit="sample", peer_is="encoders by torch.compile",
    ).write()  # fmt: skip
    torch._dynamo.reset()
    gc.collect()


class CompiledEncoders:
    """Contexts in which a network's encoders run as `torch.compile` makes them."""

    def __init__(self, network: nn.Module, device: torch.device) -> None:
        mode = "reduce-overhead" if device.type == "cuda" else "default"  # the first records CUDA graphs
        self._forward = {
            part: torch.compile(part.forward, mode=mode, dynamic=False)
            for part in network.modules()
            if isinstance(part, Encoder)
        }

    @contextmanager
    def __call__(self) -> Iterator[None]:
        torch.compiler.cudagraph_mark_step_begin()
        for encoder, forward in self._forward.items():
            vars(encoder)["forward"] = forward
        try:
            yield
        finally:
            for encoder in self._forward:
                del encoder.forward


if __name__ == "__main__":
    main()
