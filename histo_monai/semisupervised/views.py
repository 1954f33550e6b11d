"""The views of a step, as methods with weak and strong ones draw them."""

from __future__ import annotations

import torch

from histo_monai.semisupervised.protocol import Batch
from histo_monai.transforms.randaugment import WeakStrongViews
from histo_monai.transforms.supervised import SupervisedAugmentation


def labeled_weak_strong(
    batch: Batch, labeled: SupervisedAugmentation, unlabeled: WeakStrongViews
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Labeled, weak and strong views, each (n, 3, P, P); the latter two of one base crop. A function of the step."""
    labeled.set_random_state(batch.step.derive_seed("augmentation"))
    unlabeled.set_random_state(batch.step.derive_seed("weak and strong"))
    weak, strong = unlabeled(batch.unlabeled)
    return labeled(batch.labeled).squeeze(1), weak.squeeze(1), strong.squeeze(1)
