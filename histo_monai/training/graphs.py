"""CUDA graphs of encoder passes.

A small batch's pass is some hundred kernels, and their launches take longer than their computation. A graph launches
all kernels at once, for one encoder and one batch shape. Its memory addresses are fixed, so weights must be changed in
place, as optimizers, moving averages and `load_state_dict` do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from histo_monai.models.encoder import Encoder
from histo_monai.utils.process.forks import leave_garbage_to_parents
from histo_monai.utils.ranks import num_ranks

leave_garbage_to_parents()

_log = logging.getLogger(__name__)

Pass = Callable[[torch.Tensor], torch.Tensor]
"""Patches -> features."""
MOST_GRAPHS = 4
"""Graphs of an encoder; each holds the memory of its activations."""


@dataclass
class _Captured:
    """A graph, and whether gradients of its last pass are pending; a pending graph must not run."""

    run: Pass
    is_waiting: bool = False

    def __call__(self, patches: torch.Tensor) -> torch.Tensor:
        features = self.run(patches).clone()  # the next pass overwrites the graph's own tensor
        if features.requires_grad:
            self.is_waiting = True
            features.register_hook(self._done)
        return features

    def _done(self, gradient: torch.Tensor) -> None:
        self.is_waiting = False


class EncoderGraphs:
    """Context in which a network's encoders run as graphs where possible.

    Graphs need a GPU and a training by one process. A graph is captured at the second batch of a kind: shape,
    precision, gradients, and modes of the modules.
    """

    def __init__(self, network: nn.Module, device: torch.device) -> None:
        is_able = device.type == "cuda" and num_ranks() == 1
        self._encoders = [part for part in network.modules() if isinstance(part, Encoder)] if is_able else []
        self._captured: dict[Encoder, dict[Hashable, _Captured | None]] = {
            part: {} for part in self._encoders
        }
        # Collected once, as a traversal of the modules is slow.
        self._parts = {part: (list(part.modules()), list(part.parameters())) for part in self._encoders}

    def __enter__(self) -> None:
        for encoder in self._encoders:
            for captured in self._captured[encoder].values():
                if captured:
                    captured.is_waiting = False
            self._replace(encoder)

    def __exit__(self, *_: object) -> None:
        for encoder in self._encoders:
            del encoder.forward

    def _replace(self, encoder: Encoder) -> None:
        vars(encoder)["forward"] = partial(self._features, encoder)

    def _features(self, encoder: Encoder, patches: torch.Tensor) -> torch.Tensor:
        """Features by a graph, or by the encoder's own forward pass."""
        known, key = self._captured[encoder], _kind(*self._parts[encoder], patches)
        if key not in known:
            known[key] = None
        elif known[key] is None and self._may_capture(encoder, patches):
            known[key] = self._capture(encoder, patches)
        captured = known[key]
        if captured is None or captured.is_waiting:
            return type(encoder).forward(encoder, patches)
        return captured(patches)

    def _may_capture(self, encoder: Encoder, patches: torch.Tensor) -> bool:
        num = sum(captured is not None for captured in self._captured[encoder].values())
        return num < MOST_GRAPHS and not patches.requires_grad

    def _capture(self, encoder: Encoder, patches: torch.Tensor) -> _Captured | None:
        """A graph of this kind of batch; None, with a warning and no retry, where capture fails."""
        del encoder.forward
        before = [buffer.clone() for buffer in encoder.buffers()]
        try:
            run = captured_pass(encoder, patches)
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            _log.warning(
                "cuda graphs: encoder=%s not captured, so training is slower: %s", encoder.name, reason
            )
            self._encoders.remove(encoder)
            return None
        finally:
            # Warm-up passes changed the batch-norm statistics. `data`: pending backward passes see no version change.
            for buffer, value in zip(encoder.buffers(), before, strict=True):
                buffer.data.copy_(value)
        self._replace(encoder)
        return _Captured(run)


def captured_pass(encoder: Encoder, patches: torch.Tensor) -> Pass:
    """CUDA graph of an encoder, in the present precision and gradient mode.

    Args:
        encoder: warm-up passes change its buffers; the caller restores them.
        patches: an example batch; not changed.

    Raises:
        RuntimeError: a graph cannot hold an operation, or there is too little memory.
    """
    # Gradient accumulation nodes belong to the stream of the capture; other streams wait for it, so results are right.
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    own = patches.detach().clone(memory_format=torch.preserve_format)
    kind, is_enabled = torch.get_autocast_dtype("cuda"), torch.is_autocast_enabled("cuda")
    with _beside_other_threads(), torch.autocast("cuda", dtype=kind, enabled=is_enabled, cache_enabled=False):
        if torch.is_grad_enabled() and any(weight.requires_grad for weight in encoder.parameters()):
            torch.cuda.make_graphed_callables(encoder, (own,))
            run: Any = encoder.forward
            del encoder.forward
            return run
        return _without_gradients(encoder, own)


@contextmanager
def _beside_other_threads() -> Iterator[None]:
    """Context in which captures tolerate CUDA calls of other threads.

    By default CUDA refuses such calls: a loader thread that allocates page-locked memory would break the capture and
    the training. `make_graphed_callables` has no argument for the capture mode.
    """
    captured = torch.cuda.graph
    vars(torch.cuda)["graph"] = partial(captured, capture_error_mode="thread_local")
    try:
        yield
    finally:
        vars(torch.cuda)["graph"] = captured


def _without_gradients(encoder: Encoder, own: torch.Tensor) -> Pass:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(2):
            encoder(own)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        features: torch.Tensor = encoder(own)

    def run(patches: torch.Tensor) -> torch.Tensor:
        own.copy_(patches)
        graph.replay()
        return features

    return run


def _kind(parts: Sequence[nn.Module], weights: Sequence[torch.Tensor], patches: torch.Tensor) -> Hashable:
    """Key of a graph: shape, layout and dtype of patches, gradients, module modes, precision."""
    modes = tuple((part.training, getattr(part, "track_running_stats", None)) for part in parts)
    learns = torch.is_grad_enabled() and tuple(weight.requires_grad for weight in weights)
    precision = (torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"))
    return patches.shape, patches.stride(), patches.dtype, learns, modes, precision
