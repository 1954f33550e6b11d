"""Policies for samples in dictionaries, like MONAI's transforms that end in `d`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch

from histo_monai.transforms.augmentation import Augmentation, as_batch
from histo_monai.transforms.distributions import MAX_MAGNITUDE
from histo_monai.transforms.fixed_views import unaugmented_view
from histo_monai.transforms.randaugment import WeakStrongViews
from histo_monai.transforms.supervised import SupervisedAugmentation
from histo_monai.transforms.views import PretrainAugmentation
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.quiet import quiet_library

with quiet_library():
    from monai.transforms import MapTransform, RandomizableTransform

Keys = Hashable | Sequence[Hashable]


class RandViewsd(RandomizableTransform, MapTransform):
    """Views of a dictionary's images; all keys get equal random parameters, as in MONAI.

    A single view replaces its image; each of several views gets a key of its own: the image's key and a postfix. Views
    are tensors without metadata, because the image's affine would be wrong for them.

    An image may hold several patches of one place, (S, 3, H, H), such as a triple of resolutions: they have a common
    schedule but individual magnitudes.

    Not lazy: a lazy `Compose` executes its pending operations first and then gives float32; `CastToTyped` reverts it.

    Args:
        keys: Keys of images, each (3, H, H) or (S, 3, H, H), uint8, square, all of one shape.
        policy: `PretrainAugmentation`, `SupervisedAugmentation`, `WeakStrongViews`, ...
        postfixes: One per view of the policy.

    Raises:
        InputError: There is no postfix, or one occurs twice.
    """

    def __init__(
        self,
        keys: Hashable | Sequence[Hashable],
        policy: Augmentation[Any, Any],
        postfixes: Sequence[str] = ("",),
        allow_missing_keys: bool = False,
    ) -> None:
        if not postfixes or len(set(postfixes)) != len(postfixes):
            raise InputError(f"postfixes: got {list(postfixes)}. Fix: pass one for each view, none twice.")
        MapTransform.__init__(self, keys, allow_missing_keys)
        RandomizableTransform.__init__(self, prob=1.0)
        self.policy = policy
        self.postfixes = tuple(postfixes)

    def set_random_state(self, seed: int | None = None, state: np.random.RandomState | None = None) -> Self:
        """This transform with a new source of randomness, which the policy uses too."""
        super().set_random_state(seed, state)
        self.policy.set_random_state(state=self.R)
        return self

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """The dictionary with views, each (3, size_px, size_px) or (S, 3, size_px, size_px), float32, 0..1.

        Raises:
            ValueError: An image has another shape or type, or the number of views differs from the postfixes.
        """
        sample = dict(data)
        parameters = None
        for key in self.key_iterator(sample):
            batch, is_one = _batch_of_one(sample[key])
            if parameters is None:
                parameters = self.policy.randomize(1, batch.shape[1])
            found = self.policy.apply(batch, parameters)
            views: tuple[torch.Tensor, ...] = (found,) if isinstance(found, torch.Tensor) else tuple(found)
            if len(views) != len(self.postfixes):
                raise InputError(
                    f"{type(self.policy).__name__} gives {len(views)} views, but postfixes are "
                    f"{list(self.postfixes)}. Fix: pass one postfix for each view."
                )
            for view, postfix in zip(views, self.postfixes, strict=True):
                sample[f"{key}{postfix}" if postfix else key] = view[0, 0] if is_one else view[0]
        return sample


class RandPretrainViewsd(RandViewsd):
    """Images replaced by views for self-supervised pretraining (`PretrainAugmentation`, `RandViewsd`)."""

    def __init__(
        self, keys: Keys, size_px: int, prob: float = 0.5, *, allow_missing_keys: bool = False
    ) -> None:
        super().__init__(keys, PretrainAugmentation(size_px, prob), allow_missing_keys=allow_missing_keys)


class RandSupervisedViewsd(RandViewsd):
    """Images replaced by views for supervised training (`SupervisedAugmentation`, `RandViewsd`).

    Args:
        unaugmented_fraction: Fraction of images without augmentation.
        stain_jitter: Largest change of the stains; 0: none.
    """

    def __init__(
        self,
        keys: Keys,
        size_px: int,
        prob: float = 1.0,
        *,
        unaugmented_fraction: float = 0.0,
        stain_jitter: float = 0.0,
        allow_missing_keys: bool = False,
    ) -> None:
        policy = SupervisedAugmentation(
            size_px, prob, unaugmented_fraction=unaugmented_fraction, stain_jitter=stain_jitter
        )
        super().__init__(keys, policy, allow_missing_keys=allow_missing_keys)


class RandWeakStrongViewsd(RandViewsd):
    """A weak and a strong view of one crop of each image (`WeakStrongViews`, `RandViewsd`).

    Args:
        n_aug: Operations of a strong view.
        magnitudes: Smallest and largest, whole numbers in 1..10.
        crop_area: Smallest and largest area fraction of the common crop.
        postfixes: For the keys of the weak and the strong view.
    """

    def __init__(
        self,
        keys: Keys,
        size_px: int,
        n_aug: int,
        *,
        magnitudes: Sequence[int] = (1, MAX_MAGNITUDE),
        crop_area: Sequence[float] = (0.7, 1.0),
        postfixes: Sequence[str] = ("_weak", "_strong"),
        allow_missing_keys: bool = False,
    ) -> None:
        (lowest, highest), (smallest, largest) = magnitudes, crop_area
        policy = WeakStrongViews(size_px, n_aug, (lowest, highest), (smallest, largest))
        super().__init__(keys, policy, postfixes, allow_missing_keys)


class UnaugmentedViewd(MapTransform):
    """Images replaced by test inputs of a network: resized by area, 0..1, not augmented (`unaugmented_view`).

    Args:
        keys: Keys of images, each (3, H, H) or (S, 3, H, H), uint8, square.
    """

    def __init__(self, keys: Keys, size_px: int, *, allow_missing_keys: bool = False) -> None:
        super().__init__(keys, allow_missing_keys)
        self.size_px = size_px

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """The dictionary with views, each (3, size_px, size_px) or (S, 3, size_px, size_px), float32, 0..1.

        Raises:
            ValueError: An image has another shape or type.
        """
        sample = dict(data)
        for key in self.key_iterator(sample):
            batch, is_one = _batch_of_one(sample[key])
            view = unaugmented_view(batch, self.size_px)[0]
            sample[key] = view[0] if is_one else view
        return sample


def _batch_of_one(image: Any) -> tuple[torch.Tensor, bool]:
    """(3, H, H) or (S, 3, H, H) -> (1, S, 3, H, H), and whether the image had three axes."""
    if np.ndim(image) != 4:
        return as_batch(image, alone=True)
    return as_batch(torch.as_tensor(image)[None])[0], False
