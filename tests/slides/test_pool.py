from __future__ import annotations

import os
import pickle
import struct

import numpy as np
import pytest

from histo_monai.slides import Box, SlidePool


@pytest.fixture
def three_slides(write_slide, noise):
    return [write_slide(np.roll(noise, 40 * k, axis=1), (1, 2), name=f"{k}.tif", jpeg=True) for k in range(3)]


def test_a_pool_keeps_at_most_max_open_slides_open_and_drops_the_one_used_longest_ago(three_slides):
    a, b, c = three_slides
    pool = SlidePool(max_open=2)
    first, second = pool.get(a), pool.get(b)
    assert pool.get(a) is first
    pool.get(c)  # b was used longest ago
    assert len(pool) == 2
    assert pool.get(a) is first
    assert pool.get(b) is not second


def test_a_pool_closes_what_it_drops(three_slides):
    def num_files():
        return len(os.listdir("/proc/self/fd"))

    pool = SlidePool(max_open=1)
    pool.get(three_slides[0])
    before = num_files()
    for _ in range(5):
        for path in three_slides:
            pool.get(path)
    assert num_files() <= before + 1
    pool.close()
    assert len(pool) == 0
    assert num_files() < before


def test_one_file_with_two_resolutions_is_two_slides(three_slides):
    pool = SlidePool(max_open=2)
    assert pool.get(three_slides[0]).mpp == pytest.approx(0.25)
    assert pool.get(three_slides[0], mpp=0.26).mpp == 0.26


def test_a_child_process_opens_its_own_slides_and_reads_the_same_pixels(three_slides):
    pool = SlidePool(max_open=2)
    box = Box((200.4, 250.1), 64, 0.5)
    expected = pool.get(three_slides[0]).read(box)
    mine = pool.get(three_slides[0])
    readers = []
    for _ in range(2):
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                slide = pool.get(three_slides[0])
                same = slide is not mine and len(pool) == 1 and (slide.read(box) == expected).all()
                os.write(write_end, struct.pack("?", bool(same)))
                status = 0
            finally:
                os._exit(status)
        os.close(write_end)
        readers.append((child, read_end))
    for child, read_end in readers:
        assert os.read(read_end, 1) == struct.pack("?", True)
        os.close(read_end)
        assert os.waitpid(child, 0)[1] == 0
    assert pool.get(three_slides[0]) is mine
    np.testing.assert_array_equal(mine.read(box), expected)


def test_a_pool_pickles_without_its_handles(three_slides):
    pool = SlidePool(max_open=2)
    pool.get(three_slides[0])
    copy = pickle.loads(pickle.dumps(pool))
    assert (copy.max_open, len(copy)) == (2, 0)


def test_a_pool_of_no_slides_is_refused():
    with pytest.raises(ValueError, match="max_open"):
        SlidePool(max_open=0)
