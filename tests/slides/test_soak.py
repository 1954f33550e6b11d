"""Very many readings: memory, files and threads stay as they are."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import tifffile
from numpy.lib.stride_tricks import sliding_window_view

from histo_monai.slides import Box, SlidePool
from histo_monai.utils.process.threads import decode_with

NUM_READS = int(os.environ.get("HISTO_MONAI_SOAK_READS", "3000"))
SIDE_PX = 16


def memory_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def handles() -> tuple[int, int]:
    """Open files and threads."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


@pytest.mark.slow
def test_no_reading_of_200_slides_gives_a_pixel_of_another(tmp_path: Path) -> None:
    """Truth: the pixels that were written, without loss. Sixteen slides are open at a time, three threads decode."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 256, (200, 32, 32, 3), np.uint8).repeat(16, 1).repeat(16, 2)
    for number, pixels in enumerate(truth):
        path = tmp_path / f"{number}.tif"
        tifffile.imwrite(path, pixels, tile=(128, 128), photometric="rgb", compression="deflate")
    pool = SlidePool(max_open=16)
    memory = 0.0
    decode_with(3)
    try:
        for turn in range(max(250, NUM_READS // 32)):
            number = int(rng.integers(len(truth)))
            corners = rng.integers(0, 512 - 96, (32, 2))
            boxes = [Box((y + 48.0, x + 48.0), 96, 0.5) for y, x in corners.tolist()]
            patches = pool.get(tmp_path / f"{number}.tif", 0.5).read_many(boxes)
            windows = sliding_window_view(truth[number], (96, 96), axis=(0, 1))
            np.testing.assert_array_equal(patches, windows[corners[:, 0], corners[:, 1]])
            if turn == 200:
                memory = memory_mib()
        assert len(pool) == 16
        assert memory_mib() - memory < 16
    finally:
        decode_with(1)
        pool.close()


@pytest.mark.slow
def test_threads_read_what_one_thread_reads_very_many_times(real_slides: Path) -> None:
    rng = np.random.default_rng(0)
    pool = SlidePool(max_open=3)
    slides = [(real_slides / name, None) for name in ("stomach-metaplasia.tif", "duodenum-adenoma.tif")]
    slides += [(real_slides / "cmu-1-small-region.svs", None), (real_slides / "lymph-node.tif", 0.25)]
    try:
        for _ in range(max(1, NUM_READS // 256)):
            path, mpp = slides[int(rng.integers(len(slides)))]
            slide = pool.get(path, mpp)
            size = np.array(slide.size_yx)
            mpp = slide.mpp * float(rng.choice([1.0, 1.7, 2.0, 4.0]))
            boxes = [Box((float(y), float(x)), 48, mpp) for y, x in rng.uniform(-20, 20 + size, (128, 2))]
            decode_with(1)
            one = slide.read_many(boxes)
            decode_with(4)
            np.testing.assert_array_equal(slide.read_many(boxes), one)
    finally:
        decode_with(1)
        pool.close()


@pytest.mark.slow
def test_memory_files_and_threads_stay_flat_over_very_many_readings(write_slide, noise):
    """`HISTO_MONAI_SOAK_READS=100000` for the full length."""
    slides = [
        write_slide(np.roll(noise, 30 * k, axis=0), name=f"{k}.{kind}", jpeg=k % 2 == 0)
        for k, kind in enumerate(["tif", "tif", "tif", "tif", "ptif"])
    ]
    rng = np.random.default_rng(0)
    pool = SlidePool(max_open=3)

    def read(num: int) -> int:
        checksum = 0
        for _ in range(num // 10):  # Ten readings of a slide: it is closed and opened again between them.
            slide = pool.get(slides[int(rng.integers(len(slides)))])
            for y, x in rng.uniform(-20, 500, (10, 2)):
                mpp = 0.25 * float(rng.uniform(1, 4))
                checksum += int(slide.read(Box((float(y), float(x)), SIDE_PX, mpp))[0, 0, 0])
        return checksum

    assert read(NUM_READS // 4) > 0  # what is loaded and cached on the way is there now
    memory, (files, threads) = memory_mib(), handles()
    samples = []
    for _ in range(4):
        read(NUM_READS // 4)
        samples.append(memory_mib() - memory)
        assert handles()[0] <= files + 3  # three slides may be open that were not
        assert handles()[1] == threads
    assert max(samples) < 16, samples
    pool.close()
    assert len(pool) == 0
