"""MONAI's WSI datasets over our slides: every pixel against `Slide.read`, and against MONAI's own readers."""

from __future__ import annotations

import itertools
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from monai.data import DataLoader, MaskedPatchWSIDataset, PatchWSIDataset, SlidingPatchWSIDataset
from monai.data.wsi_reader import CuCIMWSIReader, OpenSlideWSIReader
from monai.transforms import LoadImage, LoadImaged

from histo_monai.data.loaders.wsi_reader import SlideReader
from histo_monai.slides import Box, Slide, open_slide, reader
from tests.hostile.project import write_slide
from tests.ranks import server

REAL = {
    "stomach-metaplasia.tif": None,
    "duodenum-adenoma.tif": None,
    "lymph-node.tif": 0.25,
    "tcga-cr-7395-01a-01-ts1.svs": 1.0,
    "cmu-1-small-region.svs": None,
}
SIDE = 96


def by_hand(
    slide: Slide, corner_yx: Any, level: int | None, mpp: float | None = None, side_px: int = SIDE
) -> np.ndarray:
    """The square with this corner: its middle is half a side, in level-0 pixels, away."""
    mpp = mpp or slide.level_mpps[level or 0]
    half = side_px * (mpp / slide.mpp if level is None else slide.level_downsamples[level]) / 2
    return slide.read(Box((float(corner_yx[0]) + half, float(corner_yx[1]) + half), side_px, mpp))


def corners(slide: Slide, num: int) -> np.ndarray:
    """Of tissue and of glass, and some that reach beyond the edges; whole level-0 pixels."""
    rng = np.random.default_rng(7)
    inside = (rng.uniform(0, 0.9, (num, 2)) * slide.size_yx).astype(int)
    return np.concatenate([inside, [[-40, -40], [slide.size_yx[0] - 30, slide.size_yx[1] - 30]]])


@pytest.fixture
def small(tmp_path: Path) -> Path:
    write_slide(tmp_path / "a.tif", 0, 0.5)
    return tmp_path / "a.tif"


@pytest.mark.parametrize("name", REAL)
def test_patches_at_locations_are_those_of_the_slide_at_every_level(real_slides: Path, name: str) -> None:
    path, mpp = real_slides / name, REAL[name]
    with open_slide(path, mpp) as slide:
        for level in range(min(3, len(slide.level_mpps))):
            data = [
                {"image": str(path), "location": corner, "label": n}
                for n, corner in enumerate(corners(slide, 5))
            ]
            dataset = PatchWSIDataset(
                data,
                patch_size=SIDE,
                patch_level=level,
                center_location=False,
                reader=SlideReader(slide_mpp=mpp),
            )
            for sample, served in zip(data, dataset, strict=True):
                assert np.array_equal(served["image"], by_hand(slide, sample["location"], level))
                assert served["label"] == sample["label"]
            about = dataset[0]["image"].meta
            assert about["path"] == str(path)
            assert about["location"].tolist() == data[0]["location"].tolist()
            assert (about["size"].tolist(), about["level"], about["mpp"]) == (
                *([SIDE, SIDE], level, slide.level_mpps[level]),
            )


@pytest.mark.parametrize("name", REAL)
def test_patches_between_levels_are_the_area_means_of_the_slide(real_slides: Path, name: str) -> None:
    path, slide_mpp = real_slides / name, REAL[name]
    with open_slide(path, slide_mpp) as slide:
        mpps = [slide.mpp * factor for factor in (1.37, 3, 5.1)]
        data = [{"image": str(path), "location": corner} for corner in corners(slide, 3)]
        for level, mpp in enumerate(mpps, 1):
            dataset = PatchWSIDataset(
                data,
                patch_size=SIDE,
                patch_level=level,
                center_location=False,
                include_label=False,
                reader=SlideReader,
                mpps=mpps,
                slide_mpp=slide_mpp,
            )
            for sample, served in zip(data, dataset, strict=True):
                assert np.array_equal(served["image"], by_hand(slide, sample["location"], None, mpp))
                assert served["image"].meta["mpp"] == mpp
                given, about = dataset.wsi_reader.get_data(
                    dataset.wsi_reader.read(path), sample["location"], (SIDE, SIDE), mpp=mpp
                )
                assert np.array_equal(given, served["image"])
                assert about["level"] == slide.level_for(mpp)


@pytest.mark.parametrize(("patch_level", "mpps", "factor"), [(1, (), 2.0), (2, (0.4, 0.7583), 3.0)])
def test_sliding_windows_tile_the_slide(
    real_slides: Path, patch_level: int, mpps: tuple[float, ...], factor: float
) -> None:
    path = real_slides / "duodenum-adenoma.tif"
    with open_slide(path) as slide:
        mpps = tuple(slide.mpp * (factor if mpp == 0.7583 else 2.5) for mpp in mpps)
        dataset = SlidingPatchWSIDataset(
            [{"image": str(path)}], patch_size=256, patch_level=patch_level, reader=SlideReader(mpps=mpps)
        )
        step = 256 * factor
        expected = [(y, x) for y in np.arange(0, 6144, step) for x in np.arange(0, 6144, step)]
        found = [tuple(np.asarray(sample["location"]).tolist()) for sample in dataset.data]
        assert found == expected
        assert dataset.data[0]["mask_size"].tolist() == [6144, 6144]
        for index in (0, len(found) // 2 + 1, len(found) - 1):
            level, mpp = (patch_level, None) if not mpps else (None, mpps[1])
            assert np.array_equal(
                dataset[index]["image"], by_hand(slide, found[index], level, mpp, side_px=256)
            )


@pytest.mark.parametrize(("mask_level", "mpps"), [(4, ()), (2, (1.0, 8.0))])
def test_masked_patches_lie_on_tissue_alone(
    real_slides: Path, mask_level: int, mpps: tuple[float, ...]
) -> None:
    path = real_slides / "stomach-metaplasia.tif"
    dataset = MaskedPatchWSIDataset(
        [{"image": str(path)}],
        patch_size=SIDE,
        patch_level=1,
        mask_level=mask_level,
        reader=SlideReader(mpps=mpps),
    )
    with open_slide(path) as slide:
        level, mpp = (None, mpps[0]) if mpps else (1, None)
        mask_mpp = mpps[1] if mpps else slide.level_mpps[4]
        pitch = mask_mpp / slide.mpp
        height, width = dataset.data[0]["mask_size"]
        assert (height, width) == (math.ceil(11685 / pitch), math.ceil(13198 / pitch))
        assert 0.1 < len(dataset.data) / (height * width) < 0.6
        saturations = []
        for index in np.linspace(0, len(dataset) - 1, 20).astype(int):
            served = dataset[int(index)]["image"]
            assert np.array_equal(served, by_hand(slide, served.meta["location"], level, mpp))
            y, x = served.meta["mask_location"]
            color = slide.read(Box(((y + 0.5) * pitch, (x + 0.5) * pitch), 1, mask_mpp)).ravel()
            saturations.append((color.max() - color.min()) / color.max())
        assert min(saturations) > 0.05  # glass has 0.02


@pytest.mark.parametrize("name", REAL)
def test_where_levels_are_exact_pixels_are_those_of_monais_own_readers(
    real_slides: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Equal where the same library decodes; the other one's JPEG decoder may round otherwise (today it does not).

    Where a level is not 2, 4, ... times smaller by its sizes (2.0005), MONAI's own readers read beside the place.
    """
    path = real_slides / name
    theirs = {"cucim": CuCIMWSIReader(), "openslide": OpenSlideWSIReader()}
    handles = {library: their.read(str(path)) for library, their in theirs.items()}
    compared = []
    for library in theirs:
        if library == "openslide":
            monkeypatch.setattr(reader, "why_not_cucim", lambda path, pages: "the test asks for OpenSlide")
        ours = SlideReader(slide_mpp=REAL[name])
        wsi = ours.read(str(path))
        with open_slide(path, REAL[name]) as slide:
            assert slide.backend == library
            inside, size_yx = corners(slide, 4)[:4], np.array(slide.size_yx)
        for level, (other, their) in itertools.product(range(ours.get_level_count(wsi)), theirs.items()):
            downsample = ours.get_downsample_ratio(wsi, level)
            if their.get_downsample_ratio(handles[other], level) != downsample:
                continue
            step = int(downsample)
            for corner in (np.minimum(inside, size_yx - SIDE * step) // step * step).tolist():
                mine, about = ours.get_data(wsi, corner, (SIDE, SIDE), level=level)
                pixels, their_about = their.get_data(handles[other], tuple(corner), (SIDE, SIDE), level=level)
                difference = np.abs(mine.astype(int) - pixels)
                assert difference.max() <= (0 if other == library else 4), (library, other, level, corner)
                assert set(their_about) == set(about) - {"mpp"}
            compared.append((library, other, level))
    assert {level for _, _, level in compared} >= ({0, 1, 2, 3} if name == "duodenum-adenoma.tif" else {0})


def test_a_patch_outside_the_slide_is_white(small: Path) -> None:
    ours = SlideReader()
    wsi = ours.read(small)
    height, width = ours.get_size(wsi, 0)
    for corner in ((-500, 0), (0, width + 5), (height + 1000, width + 1000)):
        patch, about = ours.get_data(wsi, corner, (32, 32))
        assert (patch == 255).all()
        assert about["location"].tolist() == list(corner)
    half, _ = ours.get_data(wsi, (-16, 0), (32, 32))
    assert (half[:, :16] == 255).all()
    assert np.array_equal(half[:, 16:], ours.get_data(wsi, (0, 0), (16, 32))[0])


def test_rectangles_and_whole_slides_are_put_together_without_a_seam(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = SlideReader()
    wsi = ours.read(small)
    with open_slide(small) as slide:
        whole = slide.thumbnail(slide.mpp).transpose(2, 0, 1)
    assert np.array_equal(ours.get_data(wsi)[0], whole)
    for height, width in ((40, 200), (200, 33), (1, 7)):
        assert np.array_equal(
            ours.get_data(wsi, (11, 23), (height, width))[0], whole[:, 11 : 11 + height, 23 : 23 + width]
        )
    monkeypatch.setattr("histo_monai.data.loaders.wsi_levels._MAX_SIDE_PX", 50)
    assert np.array_equal(ours.get_data(wsi)[0], whole)
    quarter, _ = ours.get_data(wsi, mpp=2.0)
    blocks = whole.reshape(3, whole.shape[1] // 4, 4, whole.shape[2] // 4, 4).mean((2, 4))
    assert np.abs(quarter - blocks).max() <= 0.5 + 1e-6


def test_power_is_that_of_the_file_or_an_error(real_slides: Path, small: Path) -> None:
    path = real_slides / "cmu-1-small-region.svs"
    ours = SlideReader()
    wsi = ours.read(path)
    assert ours.get_power(wsi, 0) == OpenSlideWSIReader().get_power(OpenSlideWSIReader().read(path), 0) == 20
    with open_slide(path) as slide:
        expected = by_hand(slide, (300, 400), None, slide.mpp * 20 / 7)
    assert np.array_equal(ours.get_data(wsi, (300, 400), (SIDE, SIDE), power=7)[0], expected)
    with pytest.raises(ValueError, match=r"a\.tif: states no objective power. Fix: request mpp"):
        ours.get_data(ours.read(small), power=10)


def test_what_is_known_of_levels_is_what_monais_readers_know(real_slides: Path) -> None:
    path = real_slides / "stomach-metaplasia.tif"
    ours, theirs = SlideReader(), OpenSlideWSIReader()
    wsi, their_wsi = ours.read(str(path)), theirs.read(str(path))
    assert ours.get_level_count(wsi) == theirs.get_level_count(their_wsi) == 6
    assert ours.get_file_path(wsi) == theirs.get_file_path(their_wsi)
    for level in range(6):
        assert ours.get_size(wsi, level) == theirs.get_size(their_wsi, level)
        assert ours.get_downsample_ratio(wsi, level) == 2**level
        assert ours.get_downsample_ratio(wsi, level) == pytest.approx(
            theirs.get_downsample_ratio(their_wsi, level), rel=2e-3
        )
        assert ours.get_mpp(wsi, level) == pytest.approx(theirs.get_mpp(their_wsi, level), rel=2e-3)
    of_all = SlideReader(mpps=(0.5056, 4.0))
    assert of_all.get_level_count(wsi) == 3
    assert of_all.get_size(wsi, 0) == (11685, 13198)
    assert of_all.get_size(wsi, 1) == (5843, 6599)  # what half a pixel covers counts
    assert of_all.get_mpp(wsi, 2) == (4.0, 4.0)


def test_colors_type_and_axis_are_as_asked_for(small: Path) -> None:
    plain, _ = SlideReader().get_data(SlideReader().read(small), (8, 8), (16, 24))
    assert (plain.shape, plain.dtype) == ((3, 16, 24), np.uint8)
    last = SlideReader(channel_dim=-1, dtype=np.float32, mode="RGBA")
    patch, about = last.get_data(last.read(small), (8, 8), (16, 24))
    assert (patch.shape, patch.dtype) == ((16, 24, 4), np.float32)
    assert np.array_equal(patch[..., :3], plain.transpose(1, 2, 0))
    assert (patch[..., 3] == 255).all()
    assert about["original_channel_dim"] == 2
    assert about["spatial_shape"].tolist() == [16, 24]
    tensors = SlideReader(dtype=torch.float32)
    tensor, _ = tensors.get_data(tensors.read(small), (8, 8), (16, 24))
    assert tensor.dtype == torch.float32
    assert np.array_equal(tensor, plain)


def test_several_slides_are_stacked_along_the_colors(tmp_path: Path) -> None:
    for name, mpp in (("a", 0.5), ("b", 0.25)):
        write_slide(tmp_path / f"{name}.tif", 1, mpp)
    ours = SlideReader(mpp=1.0)
    slides = ours.read([tmp_path / "a.tif", tmp_path / "b.tif"])
    both, about = ours.get_data(slides, (8, 8), (16, 16))
    for n, slide in enumerate(slides):
        assert np.array_equal(both[3 * n : 3 * n + 3], ours.get_data(slide, (8, 8), (16, 16))[0])
    assert about["path"] == [str(slide.path) for slide in slides]


def test_load_image_reads_a_slide_and_its_errors_stop(small: Path, tmp_path: Path) -> None:
    sample = LoadImaged("image", SlideReader(mpp=2.0), dtype=np.uint8)({"image": str(small)})
    with open_slide(small) as slide:
        assert np.array_equal(sample["image"].permute(1, 2, 0), slide.thumbnail(2.0))
    by_name = LoadImage("histo_monai.data.loaders.wsi_reader.SlideReader", mpp=2.0, dtype=np.uint8)(small)
    assert torch.equal(by_name, sample["image"])
    assert by_name.meta["filename_or_obj"] == str(small)
    assert SlideReader().verify_suffix([small, "b.SVS"])
    assert not SlideReader().verify_suffix("a.nii")
    (tmp_path / "broken.tif").write_bytes(b"no slide")
    with pytest.raises(ValueError, match=r"broken\.tif: not a slide"):
        LoadImage(SlideReader())(tmp_path / "broken.tif")


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", "pickled"])
def test_workers_read_what_is_read_here(small: Path, start: str) -> None:
    """Pickled as for spawned workers, into processes that have imported what they need already."""
    context = server() if start == "pickled" else start
    dataset = SlidingPatchWSIDataset([{"image": str(small)}], patch_size=64, reader=SlideReader(mpps=[1.0]))
    here = torch.stack([dataset[index]["image"].as_tensor() for index in range(len(dataset))])
    loader = DataLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context=context)
    assert torch.equal(torch.cat([batch["image"].as_tensor() for batch in loader]), here)


def test_a_reader_is_pickled_without_its_slides_and_serves_threads(small: Path) -> None:
    ours = SlideReader(mpp=1.0)
    wsi = ours.read(small)
    expected, _ = ours.get_data(wsi)
    again, same = pickle.loads(pickle.dumps((ours, wsi)))
    assert np.array_equal(again.get_data(same)[0], expected)
    with ThreadPoolExecutor(4) as threads:
        for patch, _ in threads.map(lambda _: ours.get_data(wsi), range(16)):
            assert np.array_equal(patch, expected)


@pytest.mark.parametrize(
    ("made", "asked", "message"),
    [
        ({}, {"level": 9}, r"a\.tif: level 9 does not exist.*from 0 on; they have 0\.5 µm/px"),
        ({}, {"level": -1}, "level -1 does not exist"),
        ({"mpps": [1.0]}, {"level": 2}, r"level 2 does not exist.*from 0 on; they have 0\.5, 1 µm/px"),
        ({}, {"level": 0, "mpp": 1.0}, r"got level 0 and mpp 1\.0"),
        (
            {"mpp": 1.0},
            {"level": 0},
            r"made for mpp 1\.0 and is asked for level 0.*MONAI's WSI datasets always",
        ),
        ({}, {"mpp": 0.2}, r"a\.tif: 0\.2 µm/px requested, finer than the slide's own 0\.5"),
        ({}, {"mpp": (1.0, 2.0)}, r"mpp: got \(1\.0, 2\.0\)"),
        ({}, {"mpp": 0.0}, r"mpp: got 0\.0"),
        ({}, {"mode": "HSV"}, "mode: got 'HSV'. Fix: pass RGB or RGBA"),
        ({}, {"size": (0, 5)}, r"size: got \(0, 5\)"),
        ({}, {"location": (4, 4), "size": None}, r"a patch at \(4, 4\) needs a size"),
    ],
)
def test_what_cannot_be_read_is_reported_in_a_line(small: Path, made: Any, asked: Any, message: str) -> None:
    ours = SlideReader(**made)
    with pytest.raises(ValueError, match=message) as error:
        ours.get_data(ours.read(small), **({"size": (8, 8)} | asked))
    assert "\n" not in str(error.value)


def test_what_a_reader_cannot_be_made_for_is_refused_at_once(small: Path) -> None:
    with pytest.raises(ValueError, match=r"got level and mpp 1\.0.*MONAI's WSI datasets"):
        PatchWSIDataset([], patch_size=8, reader=SlideReader, mpp=1.0)
    with pytest.raises(ValueError, match="got mpp 1 and power 20"):
        SlideReader(mpp=1, power=20)
    with pytest.raises(ValueError, match="mpps: got -1"):
        SlideReader(mpps=[1.0, -1])
    with pytest.raises(ValueError, match=r"got num_workers\. Fix: pass paths alone"):
        SlideReader().read(small, num_workers=2)


def test_a_slide_without_resolution_asks_for_it(tmp_path: Path) -> None:
    write_slide(tmp_path / "bare.tif", 0, None)
    bare = str(tmp_path / "bare.tif")
    with pytest.raises(
        ValueError, match=r"bare\.tif: states no resolution. Fix: give SlideReader its slide_mpp"
    ):
        SlideReader().get_data(SlideReader().read(bare))
    for stated in (0.25, {tmp_path / "bare.tif": 0.25, "other.tif": 1.0}):
        ours = SlideReader(slide_mpp=stated)
        assert ours.get_mpp(ours.read(bare), 0) == (0.25, 0.25)
        other_spelling = f"{tmp_path}/../{tmp_path.name}/bare.tif"
        assert ours.get_mpp(ours.read(other_spelling), 0) == (0.25, 0.25)


def test_pixels_are_the_same_wherever_they_go(small: Path, device: torch.device) -> None:
    """Tiles are decoded on the CPU: a device gets the pixels, by the reader or by a loader's pinned memory."""
    asked: dict[str, Any] = {"location": (10, 20), "size": (48, 40), "level": 0}
    here, there = (
        reader.get_data(reader.read(small), **asked)[0]
        for reader in (SlideReader(dtype=torch.uint8), SlideReader(dtype=torch.uint8, device=device))
    )
    assert there.device == device
    torch.testing.assert_close(there.cpu(), here, rtol=0, atol=0)
    pinned = iter(DataLoader([here, here.flip(-1)], batch_size=2, pin_memory=device.type == "cuda"))
    torch.testing.assert_close(
        torch.as_tensor(next(pinned)).to(device, non_blocking=True).cpu(), torch.stack([here, here.flip(-1)])
    )
