import dataclasses
import subprocess
import sys

import cv2
import numpy as np
import pytest
import torch

from histo_monai.transforms import geometry, with_opencv, with_torch
from histo_monai.transforms.operations.hed import Hed
from histo_monai.transforms.operations.hue_saturation import HueSaturation
from histo_monai.transforms.operations.noise import MIN_POOL, Noise
from histo_monai.transforms.sequence import UNUSED
from histo_monai.transforms.views import PretrainAugmentation
from tests.transforms.policies import PHOTOMETRIC, drawn_by, number_of, operations

SIDE = 48

# Of what eight bits can tell, and in white noise, where neighbors differ most.
FIFTIETH_OF_A_LEVEL = 0.02 / 255


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def white_noise(num_patches, side=SIDE):
    generator = torch.Generator().manual_seed(0)
    patches = torch.randint(0, 256, (num_patches, 3, side, side), dtype=torch.uint8, generator=generator)
    # Where hue, saturation and density are special: black, white, grays and pure colors.
    special = [
        [0, 0, 0],
        [255, 255, 255],
        [128, 128, 128],
        [255, 0, 0],
        [0, 255, 0],
        [0, 0, 255],
        [255, 255, 0],
    ]
    patches[:, :, : len(special), 0] = torch.tensor(special, dtype=torch.uint8).T
    return patches


def pool_of(size_px):
    return torch.randn(max(MIN_POOL, 4 * size_px**2), generator=torch.Generator().manual_seed(1))


def draw(num_samples, prob=0.5, **ranges):
    augment = PretrainAugmentation(SIDE, prob, operations(**ranges)).set_random_state(0)
    return augment.randomize(num_samples, 1)


def only(drawn, operation):
    """No geometry, and this photometric operation alone (None: none)."""
    number = UNUSED if operation is None else number_of(operation, drawn)
    return dataclasses.replace(
        drawn,
        matrices=torch.eye(3, dtype=torch.float64).expand_as(drawn.matrices),
        schedule=np.full((len(drawn.schedule), 1), number),
    )


def both(patches, drawn, size_px=SIDE):
    pool = pool_of(size_px)
    return (
        with_opencv.augment(patches, drawn, pool, size_px),
        with_torch.augment(patches, drawn, pool, size_px),
    )


@pytest.mark.parametrize("operation", PHOTOMETRIC)
def test_every_photometric_operation_equals_that_of_torch_to_float_precision(operation):
    patches, drawn = white_noise(24), only(draw(24), operation)
    ours, expected = both(patches, drawn)
    # torch takes log1p(x - 1), which is exact to 1.5e-5 of a dark pixel; OpenCV's logarithm is exact.
    assert (ours - expected).abs().max() < (2e-5 if operation is Hed else 5e-6)
    assert (ours - patches / 255).abs().flatten(1).amax(1).median() > 1 / 255


def test_extreme_parameters_equal_those_of_torch_and_stay_in_range():
    settings = {"hue": 3.0, "brightness": 1.0, "contrast": 1.0, "noise_sigma": 1.0, "hed": 0.5, "prob": 1.0}
    patches, drawn = white_noise(48), draw(48, **settings)
    for operation in PHOTOMETRIC:
        ours, expected = both(patches, only(drawn, operation))
        assert ours.isfinite().all()
        assert ours.min() >= 0
        assert ours.max() <= 1
        assert (ours - expected).abs().max() < (2e-4 if operation is Hed else 5e-6)


@pytest.mark.parametrize("saturation", [-1.0, 0.0, 1.0])
def test_the_ends_of_saturation_equal_those_of_torch(saturation):
    drawn = only(draw(6), HueSaturation)
    drawn_by(HueSaturation, drawn)[..., 1] = saturation
    ours, expected = both(white_noise(6), drawn)
    assert (ours - expected).abs().max() < 5e-6


@pytest.mark.parametrize(
    ("side", "expected_levels"), [(SIDE, {0, 1, 2}), (2 * SIDE, {0, 1, 2, 3}), (75, {0, 1, 2}), (31, {0, 1})]
)
def test_every_warp_equals_that_of_torch_at_any_size_and_level(side, expected_levels):
    drawn = draw(60, prob=0.8, scale=(0.3, 2.0))
    warps = dataclasses.replace(drawn, schedule=np.full_like(drawn.schedule, UNUSED))
    levels = geometry.pooling_levels(drawn.matrices.flatten(0, 1), side, SIDE)
    assert set(levels.tolist()) >= expected_levels
    ours, expected = both(white_noise(60, side), warps)
    assert (ours - expected).abs().max() < FIFTIETH_OF_A_LEVEL


def test_a_warp_far_beyond_the_edge_equals_that_of_torch():
    # Over a whole side away: mirrored more than once.
    drawn = draw(40, prob=1.0, affine_shift=1.5)
    warps = dataclasses.replace(drawn, schedule=np.full_like(drawn.schedule, UNUSED))
    ours, expected = both(white_noise(40), warps)
    assert (ours - expected).abs().max() < 5 * FIFTIETH_OF_A_LEVEL


def test_the_whole_policy_equals_that_of_torch():
    ours, expected = both(white_noise(60), draw(60, prob=0.7))
    assert (ours - expected).abs().max() < 0.1 / 255
    assert (ours - expected).abs().mean() < 2e-6


def test_without_operations_the_patch_comes_out_as_it_is():
    patches = white_noise(3)
    ours = with_opencv.augment(patches, only(draw(3), None), pool_of(SIDE), SIDE)
    assert torch.allclose(ours, patches / 255, rtol=0, atol=1e-7)


def test_patches_that_are_not_contiguous_are_read_right():
    patches = white_noise(6)
    drawn = only(draw(6), None)
    turned = patches.permute(0, 1, 3, 2)
    ours = with_opencv.augment(turned, drawn, pool_of(SIDE), SIDE)
    assert torch.allclose(ours, turned / 255, rtol=0, atol=1e-7)


def test_the_number_of_threads_changes_no_byte(threads):
    patches, drawn, pool = white_noise(11), draw(11, prob=0.8), pool_of(SIDE)
    results = []
    for number in (1, 2, 3):
        threads(number)
        results.append(with_opencv.augment(patches, drawn, pool, SIDE))
    assert all(torch.equal(result, results[0]) for result in results)


def test_opencv_works_on_the_caller_s_thread_alone(monkeypatch):
    seen = set()
    warp = with_opencv._warp

    def watched(*arguments):
        seen.add(cv2.getNumThreads())
        return warp(*arguments)

    monkeypatch.setattr(with_opencv, "_warp", watched)
    with_opencv.augment(white_noise(3), draw(3), pool_of(SIDE), SIDE)
    assert seen == {1}


def test_opencv_keeps_its_own_number_of_threads_even_after_an_error():
    before = cv2.getNumThreads()
    try:
        cv2.setNumThreads(2)
        with_opencv.augment(white_noise(2), draw(2), pool_of(SIDE), SIDE)
        assert cv2.getNumThreads() == 2
        with pytest.raises(ValueError, match="reshape"):
            with_opencv.augment(white_noise(2), only(draw(2), Noise), torch.zeros(7), SIDE)
        assert cv2.getNumThreads() == 2
        with with_opencv._opencv_on_the_callers_thread(), with_opencv._opencv_on_the_callers_thread():
            assert cv2.getNumThreads() == 1
        assert cv2.getNumThreads() == 2
    finally:
        cv2.setNumThreads(before)


FORK = """
import os, sys, cv2, numpy as np, torch
from histo_monai.transforms import with_opencv
from histo_monai.transforms.operations.noise import MIN_POOL
from histo_monai.transforms.views import PretrainAugmentation

cv2.setNumThreads(4)
cv2.GaussianBlur(np.zeros((2000, 2000, 3), np.float32), (9, 9), 2)  # on four threads, of which a child has one
child = os.fork()
if child == 0:
    torch.set_num_threads(1)
    drawn = PretrainAugmentation(32, prob=1.0).randomize(2, 1)
    patches, pool = torch.zeros(2, 3, 32, 32, dtype=torch.uint8), torch.zeros(2 * MIN_POOL)
    with_opencv.augment(patches, drawn, pool, 32)
    cv2.setNumThreads(2)
    cv2.GaussianBlur(np.zeros((2000, 2000, 3), np.float32), (9, 9), 2)
    os._exit(0)
assert cv2.getNumThreads() == 4
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0)
"""


def test_a_forked_child_does_not_miss_the_opencv_threads_of_its_parent():
    run = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
