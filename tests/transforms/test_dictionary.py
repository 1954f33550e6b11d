"""Policies by name, as MONAI's dictionaries, `Compose` and bundles use them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from monai.bundle import ConfigParser
from monai.data import MetaTensor
from monai.transforms import CastToTyped, Compose, RandFlipd, RandRotate90d
from monai.utils import MAX_SEED

from histo_monai.transforms import dictionary
from histo_monai.transforms.dictionary import (
    RandPretrainViewsd,
    RandSupervisedViewsd,
    RandViewsd,
    RandWeakStrongViewsd,
    UnaugmentedViewd,
)
from histo_monai.transforms.randaugment import WeakStrongViews
from histo_monai.transforms.supervised import SupervisedAugmentation
from histo_monai.transforms.views import PretrainAugmentation
from tests.hostile.project import tissue

HERE = "histo_monai.transforms.dictionary."
BY_NAME: dict[str, tuple[Any, dict[str, Any]]] = {
    "RandPretrainViewsd": (lambda: PretrainAugmentation(32, prob=0.7), {"size_px": 32, "prob": 0.7}),
    "RandSupervisedViewsd": (
        lambda: SupervisedAugmentation(32, unaugmented_fraction=0.3, stain_jitter=0.1),
        {"size_px": 32, "unaugmented_fraction": 0.3, "stain_jitter": 0.1},
    ),
    "RandWeakStrongViewsd": (
        lambda: WeakStrongViews(32, 3, (2, 6), (0.5, 0.9)),
        {"size_px": 32, "n_aug": 3, "magnitudes": [2, 6], "crop_area": [0.5, 0.9]},
    ),
}
POSTFIXES = {"RandWeakStrongViewsd": ("_weak", "_strong")}


def _image(seed: int = 0, side_px: int = 48) -> torch.Tensor:
    return torch.from_numpy(tissue(seed, side_px).transpose(2, 0, 1).copy())


@pytest.mark.parametrize("name", BY_NAME)
def test_a_bundle_names_a_policy_in_plain_numbers(name: str) -> None:
    policy, numbers = BY_NAME[name]
    config = {
        "train": {
            "_target_": "Compose",
            "transforms": [{"_target_": HERE + name, "keys": ["image"], **numbers}],
        }
    }
    parser = ConfigParser(config)
    parser.parse()
    compose = parser.get_parsed_content("train").set_random_state(5)
    # Compose draws a seed for each of its transforms.
    seed = np.random.RandomState(5).randint(MAX_SEED, dtype="uint32")
    by_hand = RandViewsd("image", policy(), POSTFIXES.get(name, ("",))).set_random_state(int(seed))
    for n in range(3):
        found, expected = compose({"image": _image(n), "label": n}), by_hand({"image": _image(n), "label": n})
        assert set(found) == set(expected)
        for key, value in expected.items():
            assert torch.equal(torch.as_tensor(found[key]), torch.as_tensor(value)), key


@pytest.mark.parametrize("name", BY_NAME)
def test_the_same_state_gives_the_same_views(name: str) -> None:
    cls: Any = getattr(dictionary, name)
    numbers = BY_NAME[name][1]
    one, same = (Compose([cls("image", **numbers)]).set_random_state(3)({"image": _image()}) for _ in "ab")
    other = Compose([cls("image", **numbers)]).set_random_state(4)({"image": _image()})
    key = "image_strong" if "image_strong" in one else "image"
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one[key], other[key])


def test_a_triple_shares_what_is_drawn_for_it_and_keeps_magnitudes_apart() -> None:
    triple = torch.stack([_image()] * 3)
    drawn = RandPretrainViewsd("image", 32).set_random_state(1)({"image": triple})["image"]
    assert drawn.shape == (3, 3, 32, 32)
    policy = PretrainAugmentation(32).set_random_state(1)
    assert torch.equal(drawn, policy(triple[None])[0])
    assert not torch.equal(drawn[0], drawn[1])


def test_a_key_that_is_missing_is_passed_over_where_that_is_allowed() -> None:
    image = _image()
    lenient = RandSupervisedViewsd(["image", "gone"], 32, allow_missing_keys=True).set_random_state(0)
    assert set(lenient({"image": image})) == {"image"}
    with pytest.raises(KeyError, match="gone"):
        RandSupervisedViewsd(["image", "gone"], 32)({"image": image})


@pytest.mark.parametrize("lazy", [False, True])
def test_what_waits_in_a_lazy_compose_is_done_before_the_views(lazy: bool) -> None:
    def run(*transforms: Any) -> torch.Tensor:
        compose = Compose(
            [*transforms, CastToTyped("image", torch.uint8), UnaugmentedViewd("image", 48)], lazy=lazy
        )
        return compose({"image": MetaTensor(_image())})["image"]

    both = run(RandFlipd("image", prob=1.0, spatial_axis=1), RandRotate90d("image", prob=1.0, max_k=1))
    torch.testing.assert_close(both, torch.rot90(_image().flip(2), 1, (1, 2)) / 255)


def test_the_unaugmented_view_is_the_image_by_area() -> None:
    image = _image()
    view = UnaugmentedViewd("image", 24)({"image": image, "label": 1})
    blocks = image.double().reshape(3, 24, 2, 24, 2).mean((2, 4)) / 255
    assert view["label"] == 1
    torch.testing.assert_close(view["image"].double(), blocks, atol=1e-4, rtol=0)
    triple = UnaugmentedViewd("image", 24)({"image": torch.stack([image] * 3)})["image"]
    assert torch.equal(triple[2], view["image"])


def test_impossible_numbers_are_refused_where_the_policy_is_made() -> None:
    with pytest.raises(ValueError, match="n_aug"):
        RandWeakStrongViewsd("image", 32, 11)
    with pytest.raises(ValueError, match="prob"):
        RandPretrainViewsd("image", 32, 1.5)
    with pytest.raises(ValueError, match="magnitudes"):
        RandWeakStrongViewsd("image", 32, 2, magnitudes=[5, 12])
