"""Policies for samples that are dictionaries, as MONAI's transforms that end in `d`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from monai.transforms import MapTransform, RandomizableTransform

from histo_monai.errors import InputError
from histo_monai.transforms.augmentation import Augmentation, as_batch


class RandViewsd(RandomizableTransform, MapTransform):
    """Views of the images of a dictionary; those of several keys are drawn alike, as MONAI has it.

    Of a policy with one view the image is replaced; of one with several each view has a key of its own: the image's
    and one of `postfixes`.

    Args:
        keys: of images, each (3, H, H), uint8, square, all of one side.
        policy: `PretrainAugmentation`, `SupervisedAugmentation`, `WeakStrongViews`, ...
        postfixes: of the views; one for each that the policy gives.
        allow_missing_keys: whether a key that a dictionary lacks is passed over.

    Raises:
        InputError: there is no postfix, or one comes twice.
    """

    def __init__(
        self,
        keys: Hashable | Sequence[Hashable],
        policy: Augmentation[Any, Any],
        postfixes: Sequence[str] = ("",),
        allow_missing_keys: bool = False,
    ) -> None:
        if not postfixes or len(set(postfixes)) != len(postfixes):
            raise InputError(f"postfixes are {list(postfixes)}; expected one for each view, none twice")
        MapTransform.__init__(self, keys, allow_missing_keys)
        RandomizableTransform.__init__(self, prob=1.0)
        self.policy = policy
        self.postfixes = tuple(postfixes)

    def set_random_state(self, seed: int | None = None, state: np.random.RandomState | None = None) -> Self:
        """Sets the source of all randomness, that of the policy."""
        super().set_random_state(seed, state)
        self.policy.set_random_state(state=self.R)
        return self

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """The dictionary with views, each (3, size_px, size_px), float32, 0..1.

        Raises:
            ValueError: an image has another shape or type, or the policy gives another number of views.
        """
        sample = dict(data)
        drawn = self.policy.randomize(1, 1)
        for key in self.key_iterator(sample):
            batch, _ = as_batch(sample[key], alone=True)
            found = self.policy.apply(batch, drawn)
            views: tuple[torch.Tensor, ...] = (found,) if isinstance(found, torch.Tensor) else tuple(found)
            if len(views) != len(self.postfixes):
                raise InputError(
                    f"{type(self.policy).__name__} gives {len(views)} views; expected as many postfixes, got "
                    f"{list(self.postfixes)}"
                )
            for view, postfix in zip(views, self.postfixes, strict=True):
                sample[f"{key}{postfix}" if postfix else key] = view[0, 0]
        return sample
