"""Policies for samples that are dictionaries, as MONAI's transforms that end in `d`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from monai.transforms import MapTransform, RandomizableTransform

from histo_monai.transforms.augmentation import Augmentation, as_batch
from histo_monai.transforms.draws import MAX_MAGNITUDE
from histo_monai.transforms.randaugment import WeakStrongViews
from histo_monai.transforms.supervised import SupervisedAugmentation
from histo_monai.transforms.views import PretrainAugmentation, plain_view
from histo_monai.utils.errors import InputError

Keys = Hashable | Sequence[Hashable]


class RandViewsd(RandomizableTransform, MapTransform):
    """Views of the images of a dictionary; those of several keys are drawn alike, as MONAI has it.

    Of a policy with one view the image is replaced; of one with several each view has a key of its own: the image's
    and one of `postfixes`. Views are plain tensors: an affine in the metadata of the image would not be theirs.

    An image may be several patches of one place, (S, 3, H, H), as a triple of resolutions: they share what is drawn
    for a sample, and each draws its own magnitudes.

    Not lazy: what waits in a lazy `Compose` is done before. MONAI gives float32 then, which `CastToTyped` takes back.

    Args:
        keys: of images, each (3, H, H) or (S, 3, H, H), uint8, square, all of one shape.
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
        """The dictionary with views, each (3, size_px, size_px) or (S, 3, size_px, size_px), float32, 0..1.

        Raises:
            ValueError: an image has another shape or type, or the policy gives another number of views.
        """
        sample = dict(data)
        drawn = None
        for key in self.key_iterator(sample):
            batch, is_one = _batch_of_one(sample[key])
            if drawn is None:
                drawn = self.policy.randomize(1, batch.shape[1])
            found = self.policy.apply(batch, drawn)
            views: tuple[torch.Tensor, ...] = (found,) if isinstance(found, torch.Tensor) else tuple(found)
            if len(views) != len(self.postfixes):
                raise InputError(
                    f"{type(self.policy).__name__} gives {len(views)} views; expected as many postfixes, got "
                    f"{list(self.postfixes)}"
                )
            for view, postfix in zip(views, self.postfixes, strict=True):
                sample[f"{key}{postfix}" if postfix else key] = view[0, 0] if is_one else view[0]
        return sample


class RandPretrainViewsd(RandViewsd):
    """Images replaced by views for self-supervised pretraining: see `PretrainAugmentation` and `RandViewsd`.

    Args:
        allow_missing_keys: whether a key that a dictionary lacks is passed over.
    """

    def __init__(
        self, keys: Keys, size_px: int, prob: float = 0.5, *, allow_missing_keys: bool = False
    ) -> None:
        super().__init__(keys, PretrainAugmentation(size_px, prob), allow_missing_keys=allow_missing_keys)


class RandSupervisedViewsd(RandViewsd):
    """Images replaced by views for training with labels: see `SupervisedAugmentation` and `RandViewsd`.

    Args:
        unaugmented_fraction: share of the images that come out plain.
        stain_jitter: largest change of the stains; 0: none.
        allow_missing_keys: whether a key that a dictionary lacks is passed over.
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
    """A weak and a strong view of each image, of one crop: see `WeakStrongViews` and `RandViewsd`.

    Args:
        n_aug: operations of a strong view.
        magnitudes: smallest and largest, whole numbers in 1..10.
        crop_area: smallest and largest fraction of the area in the crop of both.
        postfixes: of the keys of the weak and the strong view.
        allow_missing_keys: whether a key that a dictionary lacks is passed over.
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


class PlainViewd(MapTransform):
    """Images replaced by what a network is tested on: resized by area, 0..1, not augmented (`plain_view`).

    Args:
        keys: of images, each (3, H, H) or (S, 3, H, H), uint8, square.
        allow_missing_keys: whether a key that a dictionary lacks is passed over.
    """

    def __init__(self, keys: Keys, size_px: int, *, allow_missing_keys: bool = False) -> None:
        super().__init__(keys, allow_missing_keys)
        self.size_px = size_px

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """The dictionary with views, each (3, size_px, size_px) or (S, 3, size_px, size_px), float32, 0..1.

        Raises:
            ValueError: an image has another shape or type.
        """
        sample = dict(data)
        for key in self.key_iterator(sample):
            batch, is_one = _batch_of_one(sample[key])
            view = plain_view(batch, self.size_px)[0]
            sample[key] = view[0] if is_one else view
        return sample


def _batch_of_one(image: Any) -> tuple[torch.Tensor, bool]:
    """(3, H, H) or (S, 3, H, H) -> (1, S, 3, H, H), and whether it was the former."""
    if np.ndim(image) != 4:
        return as_batch(image, alone=True)
    return as_batch(torch.as_tensor(image)[None])[0], False
