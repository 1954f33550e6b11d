from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from histo_monai.data.loaders.batches import EpochBatches, ShuffledBatches
from histo_monai.data.loaders.loaders import patch_loader
from histo_monai.data.loaders.pixels import LabeledPatches
from histo_monai.data.loaders.reader import resize_square
from histo_monai.data.loaders.resident import ResidentPatches
from histo_monai.data.tables.patches import labeled_table
from histo_monai.slides import Box, open_slide
from histo_monai.utils.files.trees import read_image

P = 24


@pytest.fixture
def table(
    tmp_path: Path,
    write_slide: Callable[..., Path],
    write_image: Callable[..., Path],
    zipped: Callable[..., None],
) -> pd.DataFrame:
    """Squares of two slides in turn with images of P × P px, some of them in a zip."""
    slides = [write_slide(tmp_path / f"slide{i}.tif", i) for i in range(2)]
    images = [write_image(tmp_path / f"data/{i}.png", i) for i in range(4)]
    zipped(tmp_path / "data", tmp_path / "packed.zip")
    generator = np.random.default_rng(0)
    rows = []
    for i in range(16):
        square = {"path": slides[i % 4 // 2], "side_px": P, "slide_mpp": [np.nan, 0.5][i % 4 // 2]}
        square |= dict(zip("yx", generator.uniform(100, 400, 2), strict=True), mpp=1.0 + i // 8)
        image = {
            "path": [images[i // 4], tmp_path / f"packed.zip/data/{i // 4}.png"][i % 4 // 2],
            "side_px": P,
        }
        rows.append({"patch_id": str(i), **(square if i % 2 else image)})
    return labeled_table(rows)


def _expected(row: pd.Series) -> np.ndarray:
    if np.isnan(row["y"]):
        return read_image(Path(row["path"])).transpose(2, 0, 1)
    mpp = None if np.isnan(row["slide_mpp"]) else row["slide_mpp"]
    with open_slide(row["path"], mpp) as slide:
        return slide.read(Box((row["y"], row["x"]), row["side_px"], row["mpp"]))


def test_a_batch_is_what_reading_one_by_one_gives_in_the_order_asked(table: pd.DataFrame) -> None:
    dataset = LabeledPatches(table, patch_px=P, max_open_slides=1)
    order = np.random.default_rng(1).permutation(16).tolist()
    patches, rows = dataset.__getitems__(order)
    assert rows.tolist() == order
    assert patches.shape == (16, 1, 3, P, P)
    assert patches.dtype == torch.uint8
    for i, row in enumerate(order):
        assert np.array_equal(patches[i, 0].numpy(), _expected(table.iloc[row]))


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_do_not_depend_on_the_number_of_workers(table: pd.DataFrame, workers: int) -> None:
    dataset = LabeledPatches(table, patch_px=P)
    dataset.__getitems__(list(range(16)))  # opens zip and slides before the fork
    loader = patch_loader(dataset, EpochBatches(16, 5, seed=0), workers=workers, pin=False)
    fresh = LabeledPatches(table, patch_px=P)
    endless = ShuffledBatches(16, 6, num_batches=4, seed=0, purpose="test")  # rows come twice
    resident = ResidentPatches(dataset, endless, workers=workers, device=torch.device("cpu"))
    for got, batches in ((loader, EpochBatches(16, 5, seed=0)), (resident, endless), (resident, endless)):
        for (patches, rows), batch in zip(got, batches, strict=True):
            assert rows.tolist() == list(batch)
            assert torch.equal(patches, fresh.__getitems__(batch)[0])


def test_it_pickles_without_its_open_slides(table: pd.DataFrame) -> None:
    dataset = LabeledPatches(table, patch_px=P)
    before = dataset.__getitems__([1, 2, 3])[0]
    assert torch.equal(pickle.loads(pickle.dumps(dataset)).__getitems__([1, 2, 3])[0], before)


def test_rows_chosen_from_a_table_are_numbered_by_their_place(table: pd.DataFrame) -> None:
    chosen = table.iloc[[7, 2]]
    patches, rows = LabeledPatches(chosen, patch_px=P).__getitems__([1, 0])
    assert rows.tolist() == [1, 0]
    assert np.array_equal(patches[0, 0].numpy(), _expected(table.iloc[2]))


def test_halving_an_image_is_the_mean_of_four_pixels() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (48, 48, 3), dtype=np.uint8)
    mean = pixels.reshape(24, 2, 24, 2, 3).mean((1, 3))
    assert np.abs(resize_square(pixels, 24, Path("x")) - mean).max() <= 0.5


def test_enlarging_keeps_the_picture_where_it_is() -> None:
    ramp = np.broadcast_to(np.arange(0, 200, 4, dtype=np.uint8)[None, :, None], (50, 50, 3))
    larger = resize_square(ramp, 100, Path("x"))
    expected = (np.arange(100) + 0.5) / 2 * 4 - 2  # the value at each new pixel's center
    assert np.abs(larger[50, 4:-4, 0] - expected[4:-4]).max() <= 1


def test_images_and_squares_of_another_side_are_resized(
    tmp_path: Path, write_slide: Callable[..., Path], write_image: Callable[..., Path]
) -> None:
    slide = write_slide(tmp_path / "slide.tif", 0)
    image = write_image(tmp_path / "a.png", pixels=np.full((50, 54, 3), 90, np.uint8))
    square = {"y": 200, "x": 200, "mpp": 1.0, "side_px": 2 * P}
    table = labeled_table(
        [{"patch_id": "a", "path": image, "side_px": 50}, {"patch_id": "b", "path": slide, **square}]
    )
    patches = LabeledPatches(table, patch_px=P).__getitems__([0, 1])[0].numpy()
    assert (patches[0] == 90).all()
    with open_slide(slide) as opened:
        whole = opened.read(Box((200, 200), 2 * P, 1.0))
    assert np.abs(patches[1, 0] - whole.reshape(3, P, 2, P, 2).mean((2, 4))).max() <= 0.5


def test_a_long_image_and_a_missing_one_are_named(tmp_path: Path, write_image: Callable[..., Path]) -> None:
    long = write_image(tmp_path / "long.png", pixels=np.zeros((20, 30, 3), np.uint8))
    rows = [
        {"patch_id": name, "path": path, "side_px": 0}
        for name, path in (("a", long), ("b", tmp_path / "no.png"))
    ]
    dataset = LabeledPatches(labeled_table(rows), patch_px=P)
    with pytest.raises(ValueError, match=r"long\.png: 20 × 30 px. Fix: use a square"):
        dataset[0]
    with pytest.raises(ValueError, match=r"no\.png: no such file"):
        dataset[1]


def test_a_published_patch_is_shrunk_to_the_mean_of_what_each_new_pixel_covers(kather_tree: Path) -> None:
    path = next(kather_tree.glob("NCT-CRC-HE-100K/TUM/*.tif"))
    table = labeled_table([{"patch_id": "a", "path": path, "side_px": 224}])
    patch = LabeledPatches(table, patch_px=64)[0][0][0, 0].numpy().transpose(1, 2, 0)
    new, old = np.arange(64)[:, None] * 3.5, np.arange(224)[None]
    overlap = np.clip(np.minimum(new + 3.5, old + 1) - np.maximum(new, old), 0, None) / 3.5
    pixels = np.asarray(Image.open(path).convert("RGB"), dtype=float)
    assert np.abs(patch - np.einsum("yi,xj,ijc->yxc", overlap, overlap, pixels)).max() <= 0.51
