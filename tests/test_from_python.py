"""What docs/encoders.md promises somebody who uses the parts from Python."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import monai.transforms
import numpy as np
import pytest
import safetensors.torch
import timm
import torch
import torchvision
from monai.data import DataLoader, Dataset
from torch import nn

from histo_monai.models.task_model import load_encoder
from histo_monai.pretraining.contrastive_views import ContrastiveViews
from histo_monai.slides import Box, Slide, open_slide
from histo_monai.transforms.dictionary import RandViewsd
from histo_monai.transforms.randaugment import WeakStrongViews
from histo_monai.transforms.supervised import SupervisedAugmentation
from histo_monai.transforms.views import PretrainAugmentation
from tests.hostile.project import tissue, write_slide
from tests.ranks import server
from tests.wsi.inference.test_features import encoder_file as encoder_file  # a fixture

POLICIES = {
    "pretrain": lambda: PretrainAugmentation(32),
    "supervised": lambda: SupervisedAugmentation(32, stain_jitter=0.1),
    "weak and strong": lambda: WeakStrongViews(32, 3),
}


def _image(seed: int = 0, side_px: int = 48) -> torch.Tensor:
    return torch.from_numpy(tissue(seed, side_px).transpose(2, 0, 1).copy())


@pytest.mark.parametrize("library", ["torchvision", "timm"])
def test_other_libraries_load_the_trunk_and_see_the_same(library: str, encoder_file: Path) -> None:
    encoder, about = load_encoder(str(encoder_file))
    state = safetensors.torch.load_file(encoder_file)
    trunk = {n.removeprefix("encoder.trunk."): x for n, x in state.items() if n.startswith("encoder.trunk.")}
    network: Any = timm.create_model("resnet18", num_classes=0)
    if library == "torchvision":
        network = torchvision.models.resnet18()
        network.fc = nn.Identity()
    network.load_state_dict(trunk)
    patch = torch.stack([_image(seed, about["patch_px"]) for seed in range(3)]) / 255
    mean, std = (torch.tensor(about["encoder"][name]).view(3, 1, 1) for name in ("mean", "std"))
    with torch.inference_mode():
        ours, theirs = encoder.eval()(patch), network.eval()((patch - mean) / std)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert ours.shape == (3, about["encoder"]["num_features"])


class _Squares(torch.utils.data.Dataset[torch.Tensor]):
    """Squares of an open slide."""

    def __init__(self, slide: Slide) -> None:
        self.slide = slide

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.slide.read(Box((100.0 + 60 * index, 200.0), 32, 1.0)))


@pytest.mark.slow
def test_workers_read_a_slide_that_was_opened_here_and_pickled(tmp_path: Path) -> None:
    write_slide(tmp_path / "a.tif", 0, None)
    with open_slide(str(tmp_path / "a.tif"), mpp=0.5) as slide:
        squares = _Squares(slide)
        here = torch.stack([squares[i] for i in range(4)])
        loader = torch.utils.data.DataLoader(
            squares, batch_size=2, num_workers=2, multiprocessing_context=server()
        )
        assert torch.equal(torch.cat(list(loader)), here)
        with pickle.loads(pickle.dumps(slide)) as again:
            assert (again.path, again.mpp, again.size_yx) == (slide.path, 0.5, slide.size_yx)


@pytest.mark.parametrize("policy", POLICIES)
def test_one_image_is_a_batch_of_one(policy: str) -> None:
    image = _image()
    alone = POLICIES[policy]().set_random_state(3)(image)
    array = POLICIES[policy]().set_random_state(3)(image.numpy())
    batch = POLICIES[policy]().set_random_state(3)(image[None, None])
    alone, array, batch = (x if isinstance(x, tuple) else (x,) for x in (alone, array, batch))
    for one, same, whole in zip(alone, array, batch, strict=True):
        assert one.shape == (3, 32, 32)
        assert torch.equal(one, whole[0, 0])
        assert torch.equal(one, same)


def test_dictionaries_go_through_monais_compose_and_loader() -> None:
    samples = [{"image": _image(seed), "label": seed} for seed in range(4)]
    views = monai.transforms.Compose(
        [
            monai.transforms.EnsureTyped("image", dtype=torch.uint8),
            RandViewsd("image", WeakStrongViews(32, 2), ("_weak", "_strong")),
        ]
    )
    torch.manual_seed(5)  # from which MONAI's loader seeds transforms, in workers and here
    (batch,) = DataLoader(Dataset(samples, views), batch_size=4)
    assert batch["image_weak"].shape == batch["image_strong"].shape == (4, 3, 32, 32)
    assert batch["label"].tolist() == [0, 1, 2, 3]
    assert 0 <= float(batch["image_strong"].min()) <= float(batch["image_strong"].max()) <= 1
    torch.manual_seed(5)
    (again,) = DataLoader(Dataset(samples, views), batch_size=4)
    assert torch.equal(batch["image_strong"], again["image_strong"])


def test_keys_of_one_sample_are_drawn_alike() -> None:
    image = _image()
    policy = RandViewsd(("a", "b"), PretrainAugmentation(32)).set_random_state(1)
    first = policy({"a": image, "b": image.clone(), "c": 3})
    assert torch.equal(first["a"], first["b"])
    assert first["c"] == 3
    assert not torch.equal(first["a"], policy({"a": image, "b": image})["a"])


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (torch.zeros(3, 8, 8), "of uint8, 0..255, channels first, expected, got torch.float32"),
        (np.zeros((8, 8, 3), np.uint8), r"channels first, expected, got torch.uint8 \(8, 8, 3\)"),
        (torch.zeros(3, 8, 9, dtype=torch.uint8), "square patches expected, got 8 × 9 px"),
    ],
)
def test_an_image_of_another_kind_is_refused_at_once(image: Any, message: str) -> None:
    for policy in (SupervisedAugmentation(32), ContrastiveViews(32)):
        with pytest.raises(ValueError, match=message):
            policy(image)
    with pytest.raises(ValueError, match=message):
        RandViewsd("image", SupervisedAugmentation(32))({"image": image})


def test_postfixes_are_one_for_each_view() -> None:
    with pytest.raises(ValueError, match="gives 2 views, but postfixes are"):
        RandViewsd("image", WeakStrongViews(32, 2))({"image": _image()})
    with pytest.raises(ValueError, match="pass one for each view, none twice"):
        RandViewsd("image", WeakStrongViews(32, 2), ("a", "a"))
