"""Views on a CPU of several cores: helping processes make parts of a batch, patch by patch (`with_opencv`).

What a network takes on many cores becomes short, what one core takes to make its views does not.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from histo_monai.process.sharing import Helpers, num_sharing, shared_zeros
from histo_monai.transforms import with_opencv
from histo_monai.transforms.parameters import ViewParameters

_MOST = 8
"""Processes for a batch: more have less to do than it costs to ask them."""

_LEAST_PX = 32 * 64**2
"""Of a process's share of the views: to ask and to wait takes as long as four views of 64 px, and a helper has its own
copies of what this process has written to since: some 200 MB."""


def augment(
    patches: torch.Tensor,
    drawings: Sequence[ViewParameters],
    noise_pools: Sequence[torch.Tensor],
    size_px: int,
) -> list[torch.Tensor]:
    """As `with_opencv.augment`, to the byte, by as many processes as share work (`process.sharing`).

    Args:
        patches: Shape (N S, 3, H, H), uint8, on the CPU, not modified.
        drawings: Parameters of these N samples of S patches, for one view or more.
        noise_pools: Standard normal values for each.
        size_px: Side of the views.

    Returns:
        For each drawing shape (N S, 3, size_px, size_px), float32, 0..1.

    Raises:
        BrokenProcessPool: One of the processes was killed.
    """
    views = [torch.empty((len(patches), 3, size_px, size_px), dtype=torch.float32) for _ in drawings]
    batch = _Batch(
        [with_opencv.plan(drawn, patches.shape[-1], size_px) for drawn in drawings],
        patches.contiguous().numpy(),
        [pool.numpy() for pool in noise_pools],
        [view.numpy() for view in views],
    )
    num_px = len(patches) * len(drawings) * size_px**2
    num = min(num_sharing(), _MOST, len(patches), num_px // _LEAST_PX)
    if num <= 1:
        with_opencv.make(*batch)
        return views
    with _lock:
        try:
            _team_of(batch, num - 1).make(batch, num)
        except BaseException:
            _end()  # others may still be at their parts
            raise
    return views


class _Batch(NamedTuple):
    """What `with_opencv.make` takes."""

    plans: list[with_opencv.Plan]
    sources: NDArray[np.uint8]
    normals: list[NDArray[np.float32]]
    views: list[NDArray[np.float32]]

    def rows(self, some: slice) -> _Batch:
        """Some of the patches."""
        plans = [plan.rows(some) for plan in self.plans]
        return _Batch(plans, self.sources[some], self.normals, [view[some] for view in self.views])

    def sizes(self) -> _Sizes:
        """Of its arrays."""
        normals, views = ([array.shape for array in arrays] for arrays in (self.normals, self.views))
        return _Sizes(self.sources.shape, normals, views)


class _Sizes(NamedTuple):
    """Shapes of the arrays of a batch, which lie in memory one after the other: floats, then patches."""

    sources: tuple[int, ...]
    normals: list[tuple[int, ...]]
    views: list[tuple[int, ...]]

    @property
    def num_bytes(self) -> int:
        """Of all."""
        return 4 * sum(map(prod, (*self.normals, *self.views))) + prod(self.sources)

    def arrays(
        self, memory: NDArray[np.uint8]
    ) -> tuple[NDArray[np.uint8], list[NDArray[np.float32]], list[NDArray[np.float32]]]:
        """Patches, normal values and views in a memory."""
        floats, first = [], 0
        for shape in (*self.normals, *self.views):
            end = first + 4 * prod(shape)
            floats.append(memory[first:end].view(np.float32).reshape(shape))
            first = end
        sources = memory[first : first + prod(self.sources)].reshape(self.sources)
        return sources, floats[: len(self.normals)], floats[len(self.normals) :]


class _Team:
    """Helpers, and memory that holds all of a batch but the part of this process.

    Args:
        helpers: how many.
        num_bytes: of the memory.
    """

    def __init__(self, helpers: int, num_bytes: int) -> None:
        self.num = helpers
        self.memory = shared_zeros(num_bytes)
        self.helpers = Helpers(helpers, self._make)

    def make(self, batch: _Batch, num: int) -> None:
        """Write the views of a batch, by `num` processes."""
        bounds = np.linspace(0, len(batch.sources), num + 1).astype(int).tolist()
        theirs = batch.rows(slice(bounds[1], bounds[-1]))
        sizes = theirs.sizes()
        sources, normals, views = sizes.arrays(self.memory)
        sources[:] = theirs.sources
        for shared, pool in zip(normals, theirs.normals, strict=True):
            shared[:] = pool
        for number, (first, end) in enumerate(itertools.pairwise(bound - bounds[1] for bound in bounds[1:])):
            rows = slice(first, end)
            self.helpers.ask(number, [plan.rows(rows) for plan in theirs.plans], rows, sizes)
        with_opencv.make(*batch.rows(slice(0, bounds[1])))
        for number in range(num - 1):
            self.helpers.wait(number)
        for made, view in zip(views, theirs.views, strict=True):
            torch.from_numpy(view).copy_(torch.from_numpy(made))  # by all cores

    def _make(self, plans: list[with_opencv.Plan], rows: slice, sizes: _Sizes) -> None:
        """A helper's part."""
        sources, normals, views = sizes.arrays(self.memory)
        with_opencv.make(plans, sources[rows], normals, [view[rows] for view in views])


class _Process:
    """This process's team."""

    team: _Team | None = None


_lock = threading.Lock()


def _team_of(batch: _Batch, helpers: int) -> _Team:
    """So many helpers or more, and memory for a batch; new ones where those that there are will not do."""
    team, needed = _Process.team, batch.sizes().num_bytes
    if team is None or team.num < helpers or len(team.memory) < needed:
        _end()
        team = _Process.team = _Team(helpers, needed)
    return team


def _end() -> None:
    team, _Process.team = _Process.team, None
    if team is not None:
        team.helpers.end()


def _forget_in_child() -> None:
    global _lock
    _Process.team, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_in_child)
