"""Applies different operations to different images of a batch, each image's own in its own order."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

# (images (n, 3, H, W), this operation's parameters (n, k)) -> images
Operation = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

UNUSED = -1


def draw_schedule(
    random_state: np.random.RandomState, num_samples: int, num_operations: int, prob: float
) -> np.ndarray:
    """Draws which operations each sample gets, each with probability `prob`, and in which order, uniformly.

    Args:
        random_state: Source of randomness.
        num_samples: N.
        num_operations: K.
        prob: Of each operation, independently.

    Returns:
        Shape (N, K), int64: numbers of operations in order of application, `UNUSED` for a step without one.
    """
    order = random_state.rand(num_samples, num_operations).argsort(axis=1)
    selected = random_state.rand(num_samples, num_operations) < prob
    return np.where(np.take_along_axis(selected, order, axis=1), order, UNUSED)


def apply_in_sequence(
    images: torch.Tensor,
    schedule: np.ndarray,
    operations: Sequence[Operation],
    parameters: Sequence[torch.Tensor],
) -> torch.Tensor:
    """Runs every image through its own sequence of operations; what is not scheduled costs nothing.

    The images that meet the same operation at the same step are processed together. The schedule is looked
    at on the CPU, and all row numbers travel to the images' device in one transfer.

    Args:
        images: Shape (N, 3, H, W), float32. May be overwritten.
        schedule: Shape (N, steps), int: the operation of each step, or `UNUSED`.
        operations: Each takes some of the images and the same rows of its parameters.
        parameters: Per operation, shape (N, k), on the images' device.

    Returns:
        Shape (N, 3, H, W), float32.
    """
    groups = [
        (operation, np.flatnonzero(schedule[:, step] == operation))
        for step in range(schedule.shape[1])
        for operation in np.unique(schedule[:, step])
        if operation != UNUSED
    ]
    if not groups:
        return images
    on_device = torch.from_numpy(np.concatenate([rows for _, rows in groups])).to(
        images.device, non_blocking=True
    )
    for (operation, _), rows in zip(groups, on_device.split([len(rows) for _, rows in groups]), strict=True):
        if len(rows) == len(images):
            images = operations[operation](images, parameters[operation])
        else:
            part = operations[operation](
                images.index_select(0, rows), parameters[operation].index_select(0, rows)
            )
            images.index_copy_(0, rows, part)
    return images
