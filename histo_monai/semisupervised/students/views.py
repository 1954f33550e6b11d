"""Labeled, weak and strong views of a step."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from histo_monai.semisupervised.protocol import Batch
from histo_monai.semisupervised.settings import StrongRanges
from histo_monai.transforms.distributions import MAX_MAGNITUDE
from histo_monai.transforms.operations.blur import Blur
from histo_monai.transforms.randaugment import STRONG, WeakStrongViews, strong_operations
from histo_monai.transforms.supervised import SupervisedAugmentation

_LOG = logging.getLogger(__name__)
_ALL = tuple(operation.name for operation in STRONG)


def weak_strong_views(
    patch_px: int,
    num: int,
    ranges: StrongRanges,
    *,
    mpp: float | None,
    magnitudes: tuple[int, int] = (1, MAX_MAGNITUDE),
    names: Sequence[str] = _ALL,
) -> WeakStrongViews:
    """Random weak and strong views of patches.

    Args:
        mpp: µm/px of the views; None: the blur kernel is in pixels, and the log states it.
        names: operations to select from at random.

    Raises:
        InputError: an operation is unknown, or fewer are named than `num`.
    """
    if ranges.blur_mpp is not None and mpp is None and Blur.name in names:
        _LOG.info("strong views: patches have no µm/px; blur kernel in pixels")
    operations = strong_operations(
        names,
        limits=names if ranges.within_limits else (),
        affine_scale=(ranges.affine_scale[0], ranges.affine_scale[1]),
        hue=(ranges.hue[0], ranges.hue[1]),
        mpp=mpp,
        kernel_mpp=ranges.blur_mpp,
    )
    return WeakStrongViews(patch_px, num, magnitudes, operations=operations)


def labeled_weak_strong(
    batch: Batch, labeled: SupervisedAugmentation, unlabeled: WeakStrongViews
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Labeled, weak and strong views of a step, each (n, 3, P, P); weak and strong views have a common base crop."""
    labeled.set_random_state(batch.step.derive_seed("augmentation"))
    unlabeled.set_random_state(batch.step.derive_seed("weak and strong"))
    weak, strong = unlabeled(batch.unlabeled)
    return labeled(batch.labeled).squeeze(1), weak.squeeze(1), strong.squeeze(1)
