"""Views made on a device are those that torch makes on the CPU, whatever the device makes them with."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from histo_monai.pretraining.contrastive_views import ContrastiveViews
from histo_monai.transforms import with_opencv, with_torch
from histo_monai.transforms.augmentation import Augmentation
from histo_monai.transforms.randaugment import WeakStrongViews
from histo_monai.transforms.supervised import SupervisedAugmentation
from histo_monai.transforms.views import PretrainAugmentation

SIDE = 32
TENTH_OF_A_GRAY_LEVEL = 0.1 / 255
POLICIES: dict[str, Callable[[], Augmentation]] = {
    "pretraining": lambda: PretrainAugmentation(SIDE),
    "MoCo": lambda: ContrastiveViews(SIDE),
    "supervised": lambda: SupervisedAugmentation(SIDE, stain_jitter=0.1),
    "weak and strong": lambda: WeakStrongViews(SIDE, 7),
}


def in_torch(patches, drawings, pools, size_px):
    """What the CPU makes, made the way that other devices take."""
    return [
        with_torch.augment(patches, drawn, pool, size_px) for drawn, pool in zip(drawings, pools, strict=True)
    ]


@pytest.mark.parametrize("name", POLICIES)
def test_views_of_a_device_are_those_of_the_cpu_to_a_tenth_of_a_gray_level(
    name: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """White noise in uint8, the hardest to interpolate."""
    random = torch.Generator().manual_seed(0)
    patches = torch.randint(0, 256, (64, 1, 3, SIDE, SIDE), dtype=torch.uint8, generator=random)
    found = POLICIES[name]().set_random_state(0)(patches.to(device))
    monkeypatch.setattr(with_opencv, "augment_views", in_torch)
    expected = POLICIES[name]().set_random_state(0)(patches)
    pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    for there, here in pairs:
        assert there.device == device
        assert there.dtype == torch.float32
        error = (there.cpu() - here).abs()
        assert error.max() < TENTH_OF_A_GRAY_LEVEL
