"""Schedules of operations: each sample of a batch has its own operations in its own order."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from histo_monai.transforms import geometry
from histo_monai.utils.transfer import sent

# (images (n, 3, H, W), the operation's parameters (n, k)) -> images
Apply = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

UNUSED = -1


def random_schedule(
    random_state: np.random.RandomState, num_samples: int, num_operations: int, prob: float
) -> np.ndarray:
    """Random schedules: each operation with probability `prob`, in uniformly random order.

    Args:
        num_samples: N.
        num_operations: K.
        prob: Probability of each operation, independently.

    Returns:
        Shape (N, K), int64: numbers of operations in order of application, `UNUSED` for a step without one.
    """
    order = random_state.rand(num_samples, num_operations).argsort(axis=1)
    selected = random_state.rand(num_samples, num_operations) < prob
    return np.where(np.take_along_axis(selected, order, axis=1), order, UNUSED)


def random_distinct_schedule(
    random_state: np.random.RandomState, num_samples: int, num_operations: int, count: int
) -> np.ndarray:
    """Random schedules of `count` different operations, in uniformly random order.

    Args:
        random_state: Its use does not depend on `count`.
        num_samples: N.
        num_operations: K.
        count: At most K.

    Returns:
        Shape (N, count), int64: numbers of operations in order of application.
    """
    return random_state.rand(num_samples, num_operations).argsort(axis=1)[:, :count]


def packed(schedule: np.ndarray, nothing: int = UNUSED) -> np.ndarray:
    """A schedule, shape (N, steps), with steps equal to `nothing` moved to the end, in stable order."""
    return np.take_along_axis(schedule, np.argsort(schedule == nothing, axis=1, kind="stable"), axis=1)


def compose_in_sequence(matrices: Sequence[torch.Tensor], schedule: np.ndarray) -> torch.Tensor:
    """One matrix per patch: the product of its sample's geometric operations in order.

    Args:
        matrices: Matrices of each geometric operation, shape (N, S, 3, 3), float64.
        schedule: Shape (N, steps), int: the operation of each step; other numbers change nothing.

    Returns:
        Shape (N, S, 3, 3), float64.
    """
    nothing = len(matrices)
    unchanged = torch.eye(3, dtype=torch.float64).expand_as(matrices[0])
    own = np.where((schedule == UNUSED) | (schedule >= nothing), nothing, schedule)
    # Empty steps move to the end, and are dropped if they are empty for all samples.
    own = packed(own, nothing)
    own = own[:, : max(1, int((own != nothing).sum(axis=1).max(initial=0)))]
    stacked, samples = torch.stack([*matrices, unchanged]), torch.arange(len(schedule))
    return geometry.compose([stacked[torch.from_numpy(step), samples] for step in own.T])


def apply_in_sequence(
    images: torch.Tensor,
    schedule: np.ndarray,
    operations: Sequence[Apply],
    parameters: Sequence[torch.Tensor],
) -> torch.Tensor:
    """Images after their own sequences of operations; unscheduled operations cost nothing.

    Images with an equal next operation are processed together, at any step. The schedule is evaluated on the CPU, and
    one transfer moves all row numbers to the images' device.

    Args:
        images: Shape (N, 3, H, W), float32. May be overwritten.
        schedule: Shape (N, steps), int: the operation of each step, or `UNUSED`.
        operations: Functions of some images and their rows of parameters.
        parameters: Per operation, shape (N, k), on the images' device.

    Returns:
        Shape (N, 3, H, W), float32.
    """
    groups = list(_groups(schedule))
    partial_rows = [rows for _, rows in groups if len(rows) < len(schedule)]
    on_device = sent(torch.from_numpy(np.concatenate([*partial_rows, np.zeros(0, np.int64)])), images.device)
    start = 0
    for operation, rows in groups:
        apply = operations[operation]
        if len(rows) == len(schedule):
            images = apply(images, parameters[operation])
        else:
            own = on_device[start : start + len(rows)]
            start += len(rows)
            part = apply(images.index_select(0, own), parameters[operation].index_select(0, own))
            images.index_copy_(0, own, part)
    return images


def _groups(schedule: np.ndarray) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Operations with the rows that need them next; the operation that most images need comes first.

    This gives a third fewer groups than going step by step, and a GPU is limited by the number of groups.
    """
    num = len(schedule)
    ended = np.concatenate([packed(schedule), np.full((num, 1), UNUSED)], axis=1)
    done = np.zeros(num, dtype=np.int64)
    while True:
        waiting = ended[np.arange(num), done]
        counts = np.bincount(waiting[waiting != UNUSED])
        if len(counts) == 0:
            return
        operation = int(counts.argmax())
        rows = np.flatnonzero(waiting == operation)
        done[rows] += 1
        yield operation, rows
