"""The views of a step, as methods with weak and strong ones draw them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from histo_monai.semisupervised.protocol import Batch
from histo_monai.semisupervised.settings import StrongRanges
from histo_monai.transforms.draws import MAX_MAGNITUDE
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
    """Weak and strong views of patches.

    Args:
        patch_px: side of the views.
        num: operations of a strong view.
        ranges: see `StrongRanges`.
        mpp: µm/px of the views; None, unknown: the kernel of the blur counts their pixels, and the log states it.
        magnitudes: smallest and largest.
        names: of the operations that are drawn from.

    Raises:
        InputError: a name is no operation, or fewer are named than a view takes.
    """
    if ranges.blur_mpp is not None and mpp is None and Blur.name in names:
        _LOG.info("strong views: µm/px of the patches is unknown, so the blur kernel counts their pixels")
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
    """Labeled, weak and strong views, each (n, 3, P, P); the latter two of one base crop. A function of the step."""
    labeled.set_random_state(batch.step.derive_seed("augmentation"))
    unlabeled.set_random_state(batch.step.derive_seed("weak and strong"))
    weak, strong = unlabeled(batch.unlabeled)
    return labeled(batch.labeled).squeeze(1), weak.squeeze(1), strong.squeeze(1)
