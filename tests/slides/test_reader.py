from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import openslide
import pytest
import tifffile
from PIL import Image

from histo_monai.slides import Box, SlideError, concentric_boxes, cucim_backend, open_slide, reader
from histo_monai.slides.resample import area_resample

PYRAMIDS = {
    "1/2/4": ((1024, 1152), (1, 2, 4)),
    "1/4/16": ((1024, 1152), (1, 4, 16)),
    "single level": ((1024, 1152), (1,)),
    "2.0005": ((1001, 1111), (1, 2)),  # sizes rounded down: ratios 2.002 and 2.0018
}


def slide_with_cross(size_yx, center_px, half_px=40, half_width_px=6):
    """White glass with a dark cross; the middle of the cross is the middle of pixel `center_px`."""
    image = np.full((*size_yx, 3), 250, np.uint8)
    y, x = center_px
    image[y - half_px : y + half_px + 1, x - half_width_px : x + half_width_px + 1] = 20
    image[y - half_width_px : y + half_width_px + 1, x - half_px : x + half_px + 1] = 20
    return image


def centroid_yx(patch):
    """Center of the dark, in patch pixels with the pixel-edge convention."""
    dark = 250.0 - patch.astype(float).mean(0)
    dark[dark < 4] = 0
    at = np.arange(patch.shape[1]) + 0.5
    return np.array([dark.sum(1) @ at, dark.sum(0) @ at]) / dark.sum()


@pytest.mark.parametrize("pyramid", PYRAMIDS)
@pytest.mark.parametrize("center_px", [(400, 512), (631, 707), (880, 931)])
@pytest.mark.parametrize("mpps", [(0.25, 0.5, 1.0), (0.3, 0.61, 1.37)])
def test_a_cross_lands_in_the_center_of_all_three_patches(write_slide, open_with, pyramid, center_px, mpps):
    size_yx, factors = PYRAMIDS[pyramid]
    path = write_slide(slide_with_cross(size_yx, center_px), factors)
    center_yx = (center_px[0] + 0.5, center_px[1] + 0.5)
    with open_with(path) as slide:
        patches = slide.read_many(concentric_boxes(center_yx, 128, mpps))
    for patch, mpp in zip(patches, mpps, strict=True):
        off_px = (centroid_yx(patch) - 64) * mpp / mpps[0]  # in pixels of the finest patch
        assert np.abs(off_px).max() < 0.5
        # Level 1 of 2.0005 lost its last row and column, nothing else: a tenth of a pixel is still met.
        assert np.abs(off_px).max() < 0.1 * max(1, mpp / mpps[0])


def test_pixels_of_a_level_come_back_bit_by_bit(write_slide, open_with, noise):
    with open_with(write_slide(noise)) as slide:
        patch = slide.read(Box((200, 260), 100, 0.25))
    np.testing.assert_array_equal(patch, noise[150:250, 210:310].transpose(2, 0, 1))


@pytest.mark.parametrize("mpp", [0.25, 0.3, 0.5, 0.75, 1.0, 2.0])
def test_a_patch_is_the_mean_of_level_0_over_the_area_of_its_pixels(write_slide, open_with, noise, mpp):
    center_yx, side = (201.3, 255.8), 40
    scale = mpp / 0.25
    top_left = tuple(value - side * scale / 2 for value in center_yx)
    truth = area_resample(noise, top_left, (scale, scale), (side, side)).transpose(2, 0, 1).astype(int)
    for factors in ((1, 2, 4), (1,)):
        with open_with(write_slide(noise, factors, name=f"{len(factors)}.tif")) as slide:
            patch = slide.read(Box(center_yx, side, mpp))
        assert np.abs(patch - truth).mean() < 1.5
        assert np.abs(patch - truth)[:, 2:-2, 2:-2].max() <= 12


def test_both_libraries_agree_on_the_same_boxes(write_slide, noise, monkeypatch):
    pytest.importorskip("cucim.clara")
    path = write_slide(noise, jpeg=True)
    rng = np.random.default_rng(0)
    boxes = [
        Box((rng.uniform(-20, 420), rng.uniform(-20, 540)), 64, mpp)
        for mpp in (0.25, 0.4, 0.5, 1, 3)
        for _ in range(4)
    ]
    one = open_slide(path)
    monkeypatch.setattr(reader, "why_not_cucim", lambda path, pages: "the test asks for OpenSlide")
    other = open_slide(path)
    assert (one.backend, other.backend) == ("cucim", "openslide")
    for box in boxes:
        assert np.abs(one.read(box).astype(int) - other.read(box)).mean() < 2


REAL_MPP = {"lymph-node.tif": 0.25, "tcga-cr-7395-01a-01-ts1.svs": 1.0}


def test_both_libraries_agree_on_real_slides(real_slides, monkeypatch):
    pytest.importorskip("cucim.clara")
    paths = [path for path in sorted(real_slides.iterdir()) if path.suffix in (".tif", ".svs")]
    ones = [open_slide(path, REAL_MPP.get(path.name)) for path in paths]
    monkeypatch.setattr(reader, "why_not_cucim", lambda path, pages: "the test asks for OpenSlide")
    rng = np.random.default_rng(0)
    for path, one in zip(paths, ones, strict=True):
        other = open_slide(path, REAL_MPP.get(path.name))
        assert (one.backend, other.backend) == ("cucim", "openslide")
        for factor in (1, 1.3, 2, 4):
            centers = rng.uniform(0.2, 0.8, (3, 2)) * np.array(one.size_yx)
            boxes = [Box((float(y), float(x)), 128, one.mpp * factor) for y, x in centers]
            difference = np.abs(one.read_many(boxes).astype(int) - other.read_many(boxes)).mean((1, 2, 3))
            assert difference.max() < 2, (path.name, factor)
        one.close()
        other.close()


def test_a_level_of_a_real_aperio_slide_is_exactly_two_pixels_apart(real_slides):
    # Sizes say 2.0005; were the level stretched, a patch at the far edge would be 1 level-0 px off.
    with open_slide(real_slides / "tcga-cr-7395-01a-01-ts1.svs", mpp=1.0) as slide:
        assert slide.level_mpps == (1.0, 2.0)
        side, center_yx = 256, (1000.0, 4000.0)
        coarse = slide.read(Box(center_yx, side, 2.0)).astype(float).mean(0)
        fine = slide.read(Box(center_yx, 2 * side, 1.0)).astype(float).mean(0)
    fits = {}
    for shift in (-2, -1, 0, 1, 2):  # level-0 pixels to the right
        moved = np.roll(fine, -shift, axis=1).reshape(side, 2, side, 2).mean((1, 3))
        fits[shift] = np.abs(moved - coarse)[:, 4:-4].mean()
    assert min(fits, key=fits.get) == 0


def test_read_many_returns_the_order_given(write_slide, noise):
    rng = np.random.default_rng(3)
    boxes = [
        Box(tuple(rng.uniform(40, 360, 2)), 32, float(rng.choice([0.25, 0.5, 0.7, 1]))) for _ in range(30)
    ]
    with open_slide(write_slide(noise)) as slide:
        together = slide.read_many(boxes)
        one_by_one = np.stack([slide.read(box) for box in boxes])
    assert together.shape == (30, 3, 32, 32)
    assert together.dtype == np.uint8
    np.testing.assert_array_equal(together, one_by_one)


@pytest.mark.parametrize("mpp", [0.25, 0.5, 0.37, 4.0])
def test_what_lies_outside_the_slide_is_white(write_slide, open_with, mpp):
    dark = np.full((300, 200, 3), 40, np.uint8)
    with open_with(write_slide(dark)) as slide:
        corner = slide.read(Box((0, 200), 64, mpp))
        outside = slide.read_many([Box((y, x), 64, mpp) for y, x in ((-3000, 50), (50, 9000), (5000, -5000))])
    assert (outside == 255).all()
    assert (corner[:, :30] == 255).all()
    assert (corner[:, :, 34:] == 255).all()
    inside = corner[:, 34:48, 18:30] if mpp < 4 else corner[:, 34:48, 24:30]
    assert np.abs(inside.astype(int) - 40).max() <= 1


def test_a_tile_that_was_never_written_is_white(write_slide, open_with):
    path = write_slide(np.full((256, 256, 3), 40, np.uint8), (1,))
    with tifffile.TiffFile(path, mode="r+") as file:
        page = file.pages[0]
        counts = list(page.databytecounts)
        offsets = list(page.dataoffsets)
        counts[5] = offsets[5] = 0  # row 1, column 1 of 4 x 4 tiles
        page.tags["TileByteCounts"].overwrite(counts)
        page.tags["TileOffsets"].overwrite(offsets)
    with open_with(path) as slide:
        patch = slide.read(Box((128, 128), 256, 0.25))
    expected = np.full((256, 256), 40)
    expected[64:128, 64:128] = 255
    np.testing.assert_array_equal(patch[0], expected)


def test_a_box_finer_than_the_slide_is_refused_naming_slide_and_resolutions(write_slide, noise):
    path = write_slide(noise)
    with open_slide(path) as slide:
        with pytest.raises(SlideError, match=r"slide\.tif: 0\.2 µm/px requested.*0\.25"):
            slide.read(Box((200, 200), 32, 0.2))
        assert slide.read(Box((200, 200), 32, 0.23)).shape == (3, 32, 32)


def test_boxes_of_two_sizes_or_none_are_refused(write_slide, noise):
    with open_slide(write_slide(noise)) as slide:
        with pytest.raises(ValueError, match=r"side_px is \[32, 64\]"):
            slide.read_many([Box((200, 200), 32, 1), Box((200, 200), 64, 1)])
        with pytest.raises(ValueError, match="side_px is missing"):
            slide.read_many([])


@pytest.mark.parametrize("factors", [(1, 2, 4), (1,)])
@pytest.mark.parametrize("mpp", [1.0, 1.6, 8.0])
def test_a_thumbnail_read_in_strips_is_the_whole_slide(
    write_slide, open_with, noise, factors, mpp, monkeypatch
):
    monkeypatch.setattr(reader, "_STRIP_PX", 20_000)  # many strips
    with open_with(write_slide(noise, factors)) as slide:
        thumbnail = slide.thumbnail(mpp)
    scale = mpp / 0.25
    size_yx = tuple(int(np.ceil(size / scale)) for size in noise.shape[:2])
    truth = area_resample(noise, (0, 0), (scale, scale), size_yx)
    assert thumbnail.shape == (*size_yx, 3)
    assert np.abs(thumbnail.astype(int) - truth).mean() < 1.5


def damage_tile(path, number, keep):
    with tifffile.TiffFile(path) as file:
        offset, count = file.pages[0].dataoffsets[number], file.pages[0].databytecounts[number]
    data = bytearray(path.read_bytes())
    data[offset + int(keep * count) : offset + count] = bytes(count - int(keep * count))
    path.write_bytes(data)


@pytest.mark.parametrize("keep", [0.0, 0.5])
def test_a_tile_filled_with_zeros_by_a_broken_download_is_an_error_when_read(
    write_slide, open_with, noise, keep
):
    path = write_slide(noise, jpeg=True)
    damage_tile(path, 10, keep)  # row 1, column 1 of 7 x 9 tiles
    with open_with(path) as slide:
        slide.read(Box((300, 300), 64, 0.25))
        with pytest.raises(SlideError, match=r"slide\.tif: .*damaged"):
            slide.read(Box((96, 96), 64, 0.25))


def test_a_file_cut_off_anywhere_is_an_error_and_never_pixels(write_slide, noise, tmp_path):
    whole = write_slide(noise, jpeg=True).read_bytes()
    for part in (0.02, 0.2, 0.5, 0.8, 0.97):
        path = tmp_path / "cut.tif"
        path.write_bytes(whole[: int(part * len(whole))])
        with pytest.raises(SlideError, match=r"cut\.tif: truncated: .*byte") as caught:
            open_slide(path)
        assert "\n" not in str(caught.value)


def test_the_error_for_a_file_that_is_no_slide_is_one_line(tmp_path):
    (tmp_path / "empty.tif").touch()
    (tmp_path / "text.svs").write_text("not a slide at all\n" * 20)
    Image.new("RGB", (64, 64)).save(tmp_path / "plain.tif")
    for folder, mark in (("old.zarr", ".zattrs"), ("new.zarr", "zarr.json")):  # formats 2 and 3
        (tmp_path / folder).mkdir()
        (tmp_path / folder / mark).write_text("{}")
    for name, what in {
        "old.zarr": "OME-Zarr.*raw2ometiff",
        "new.zarr": "OME-Zarr.*raw2ometiff",
        "missing.tif": "no such file",
        "empty.tif": "empty",
        "text.svs": "not a slide",
        "plain.tif": "not tiled",
    }.items():
        with pytest.raises(SlideError, match=what) as caught:
            open_slide(tmp_path / name, mpp=0.5)
        assert name in str(caught.value)
        assert "\n" not in str(caught.value)


def test_the_log_states_why_openslide_reads_a_slide(write_slide, noise, caplog, monkeypatch):
    monkeypatch.setattr(reader, "why_not_cucim", lambda path, pages: "because")
    with caplog.at_level(logging.INFO, logger="histo_monai.slides"):
        open_slide(write_slide(noise)).close()
    assert any("slide.tif" in text and "because" in text for text in caplog.messages)


def test_without_cucim_openslide_reads_and_the_log_states_why(write_slide, noise, caplog, monkeypatch):
    monkeypatch.setitem(sys.modules, "cucim.clara", None)
    with caplog.at_level(logging.INFO, logger="histo_monai.slides"), open_slide(write_slide(noise)) as slide:
        assert slide.backend == "openslide"
    assert any("cucim" in text.lower() for text in caplog.messages)


def test_importing_the_package_imports_neither_cucim_nor_openslide():
    code = "import sys, histo_monai.slides; print([m for m in ('cucim', 'openslide') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_opening_and_reading_prints_nothing_to_the_terminal(write_slide, noise):
    path = write_slide(noise)
    code = (
        "import sys; from histo_monai.slides import Box, open_slide\n"
        "with open_slide(sys.argv[1]) as slide: slide.read(Box((200, 200), 64, 0.5))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_cucim_keeps_no_tile_whatever_settings_the_user_has(write_slide, noise, tmp_path):
    """Its cache hands out tiles of other slides."""
    pytest.importorskip("cucim.clara")
    settings = tmp_path / "cucim.json"
    settings.write_text(json.dumps({"cache": {"type": "per_process", "memory_capacity": 128}}))
    code = (
        "import os, sys; from histo_monai.slides import open_slide\n"
        "slide = open_slide(sys.argv[1]); from cucim.clara import CuImage\n"
        "print(CuImage.cache().type, os.environ['CUCIM_CONFIG_PATH'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(write_slide(noise))],
        env={**os.environ, "CUCIM_CONFIG_PATH": str(settings)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["CacheType.NoCache", str(settings)]


@pytest.mark.parametrize("gpu", [True, False])
def test_cufile_looks_for_a_gpu_only_where_there_is_one(gpu, monkeypatch, tmp_path):
    """Else, once a recent torch has loaded it, it looks for minutes."""
    monkeypatch.setattr(cucim_backend, "_GPUS", (str(tmp_path if gpu else tmp_path / "none"),))
    monkeypatch.setenv("CUFILE_ENV_PATH_JSON", "mine.json")
    with cucim_backend._settings():
        path = os.environ["CUFILE_ENV_PATH_JSON"]
        if gpu:
            assert path == "mine.json"
        else:
            assert json.loads(Path(path).read_text()) == {"properties": {"allow_compat_mode": False}}
    assert os.environ["CUFILE_ENV_PATH_JSON"] == "mine.json"


def test_a_slide_is_read_after_torch_was_loaded(write_slide, noise):
    code = (
        "import sys, torch; from histo_monai.slides import open_slide; print(open_slide(sys.argv[1]).backend)"
    )
    command = [sys.executable, "-c", code, str(write_slide(noise))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() in ("cucim", "openslide")


def test_many_slides_read_in_one_process_are_each_their_own(write_slide, noise):
    """With cuCIM's cache some tiles are taken for others, depending on their files' inodes and times."""
    slides = []
    for value in range(24):
        path = write_slide(np.full((512, 1024, 3), 10 * value, np.uint8), name=f"{value}.tif")
        slides.append((path, 10 * value))
    for _ in range(2):
        for path, value in slides:
            with open_slide(path) as slide:
                assert slide.backend == "cucim"
                for level, size_yx in enumerate(slide.level_sizes_yx):
                    (pixels,) = slide._backend.read_regions(level, [(0, 0)], size_yx)
                    assert (np.asarray(pixels) == value).all()


def test_the_same_file_opens_in_openslide_itself(write_slide, noise):
    """The slides of these tests are slides to others too."""
    with openslide.OpenSlide(str(write_slide(noise, jpeg=True))) as slide:
        assert slide.level_count == 3


def test_a_file_written_in_place_of_another_is_read_anew(write_slide, noise):
    first = write_slide(np.full_like(noise, 50))
    os.utime(first, ns=(10**18 + 999_999_999, 10**18 + 999_999_999))
    box = Box((200, 250), 64, 0.25)
    with open_slide(first) as slide:
        assert slide.backend == "cucim"
        assert (slide.read(box) == 50).all()
    content = write_slide(np.full_like(noise, 200), name="second.tif").read_bytes()
    with first.open("r+b") as file:  # the same inode
        file.write(content)
    os.utime(first, ns=(2 * 10**18 + 999_999_999, 2 * 10**18 + 999_999_999))
    with open_slide(first) as slide:
        assert slide.backend == "cucim"
        assert (slide.read(box) == 200).all()
