"""What must hold for any numbers and any bytes."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from histo_monai.slides import Box, SlideError, choose_level, concentric_boxes
from histo_monai.slides.coverage import Weights
from histo_monai.slides.geometry import LEVEL_TOLERANCE, MAX_UPSAMPLING, level_downsample
from histo_monai.slides.resample import make_patches, plan_window
from histo_monai.slides.tiff import read_pages

reasonable = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

mpps = st.floats(0.05, 20.0)
centers = st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))


@reasonable
@given(centers, st.integers(1, 4096), st.lists(mpps, min_size=1, max_size=4))
def test_concentric_boxes_keep_center_side_and_order(center_yx, side_px, resolutions):
    boxes = concentric_boxes(center_yx, side_px, resolutions)
    assert [box.mpp for box in boxes] == resolutions
    assert {(box.center_yx, box.side_px) for box in boxes} == {(center_yx, side_px)}


@reasonable
@given(
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(allow_nan=True, allow_infinity=True),
    st.integers(-5, 5),
    st.floats(allow_nan=True, allow_infinity=True),
)
def test_a_box_is_finite_and_positive_or_refused(y, x, side_px, mpp):
    if side_px >= 1 and np.isfinite([y, x, mpp]).all() and mpp > 0:
        assert Box((y, x), side_px, mpp).side_um == side_px * mpp
        return
    with pytest.raises(ValueError, match=r"^box: (side_px|mpp|center_yx) is"):
        Box((y, x), side_px, mpp)


@reasonable
@given(mpps, st.lists(st.floats(1.01, 8.0), max_size=6), mpps)
def test_the_level_chosen_is_the_coarsest_that_is_fine_enough(finest, steps, mpp):
    levels = np.multiply.accumulate([finest, *steps]).tolist()
    if finest > mpp * MAX_UPSAMPLING:
        with pytest.raises(ValueError, match="finer than the slide"):
            choose_level(levels, mpp)
        return
    level = choose_level(levels, mpp)
    fits = [value <= mpp * (1 + LEVEL_TOLERANCE) for value in levels]
    assert fits[level] or level == 0
    assert not any(fits[level + 1 :])


@reasonable
@given(st.tuples(*[st.integers(64, 300_000)] * 2), st.integers(0, 6), st.booleans())
def test_a_level_halved_and_rounded_has_a_whole_downsample(size_yx, halvings, up):
    level_yx = size_yx
    for _ in range(halvings):
        level_yx = tuple((size + up) // 2 for size in level_yx)
    if min(level_yx) < 64:  # Below, rounding is as large as the step.
        return
    assert level_downsample(size_yx, level_yx) == 2**halvings


@reasonable
@given(centers, st.integers(1, 512), st.floats(0.9, 64.0))
def test_a_window_holds_its_field(center_yx, side_px, scale):
    window = plan_window(center_yx, side_px, scale)
    assert abs(window.scale - scale) * side_px < 1 / 64 + 1e-9
    for axis in (0, 1):
        begin = window.corner_yx[axis] + window.start_yx[axis]
        assert begin == pytest.approx(center_yx[axis] - side_px * window.scale / 2, abs=1 / 64 + 1e-6)
        assert window.start_yx[axis] >= 0
        assert window.start_yx[axis] + side_px * window.scale <= window.region_px + 1e-6


@reasonable
@given(
    st.tuples(st.floats(-500, 500), st.floats(-500, 500)),
    st.integers(1, 24),
    st.floats(0.91, 9.0),
    st.integers(0, 255),
)
def test_a_patch_of_one_color_keeps_it(center_yx, side_px, scale, value):
    window = plan_window(center_yx, side_px, scale)
    region = np.full((window.region_px, window.region_px, 3), value, np.uint8)
    patch = np.full((3, side_px, side_px), 255 - value, np.uint8)
    make_patches([region], [window], [patch])
    assert np.abs(patch.astype(int) - value).max() <= 1


@reasonable
@given(
    st.lists(st.floats(-50, 50), min_size=1, max_size=3),
    st.floats(0.5, 20.0),
    st.integers(1, 40),
    st.integers(1, 60),
)
def test_weights_of_coverage_are_fractions(starts, scale, num_out, num_in):
    weights = Weights(np.array(starts), scale, num_out, num_in)
    for number in range(len(starts)):
        matrix = weights.matrix(number, slice(0, num_out), 0, num_in).toarray()
        assert matrix.min() >= 0
        sums = matrix.sum(1)
        assert ((np.abs(sums - 1) < 1e-5) | (sums == 0)).all()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bytes") / "some.tif"


def only_a_slide_error(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    message = f"{path.name}: "
    try:
        read_pages(path)
    except SlideError as error:
        message = str(error)
    assert message.isprintable()
    assert path.name in message


HEADERS = (b"II*\0", b"MM\0*", b"II+\0\x08\0\0\0", b"MM\0+\0\x08\0\0")


@reasonable
@given(header=st.sampled_from(HEADERS), data=st.binary(max_size=400))
def test_any_bytes_behind_a_tiffs_header_are_pages_or_a_slide_error(scratch, header, data):
    only_a_slide_error(scratch, header + data)


_TAGS = st.sampled_from(
    (254, 256, 257, 258, 259, 262, 270, 277, 282, 284, 296, 317, 322, 323, 324, 325, 339, 347)
)
_NUMBERS = st.one_of(
    st.integers(0, 300), st.sampled_from((2**16 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1))
)


@reasonable
@given(
    entries=st.lists(st.tuples(_TAGS, st.integers(0, 20), _NUMBERS, _NUMBERS), max_size=24),
    big=st.booleans(),
    order=st.sampled_from("<>"),
    following=_NUMBERS,
    tail=st.binary(max_size=64),
)
def test_any_directory_is_pages_or_a_slide_error(scratch, entries, big, order, following, tail):
    word, most = ("Q", 2**64) if big else ("I", 2**32)
    mark = {"<": b"II", ">": b"MM"}[order]
    head = mark + (struct.pack(order + "HHHQ", 43, 8, 0, 16) if big else struct.pack(order + "HI", 42, 8))
    body = struct.pack(order + ("Q" if big else "H"), len(entries))
    for tag, kind, count, value in entries:
        body += struct.pack(order + "HH" + word * 2, tag, kind, count % most, value % most)
    only_a_slide_error(scratch, head + body + struct.pack(order + word, following % most) + tail)
