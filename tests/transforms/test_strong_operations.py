import numpy as np
import pytest
import scipy.ndimage
import scipy.stats
import torch

from histo_monai.transforms import with_torch
from histo_monai.transforms.operations.hue_saturation import HueSaturation
from histo_monai.transforms.randaugment import STRONG, WeakStrongViews, strong_operations
from histo_monai.utils.errors import InputError
from tests.transforms.policies import drawn_by, geometry_changed

SIDE = 32
OPERATIONS = tuple(operation.name for operation in STRONG)


def drawn_with(operations, num=3000, magnitudes=(1, 10)):
    views = WeakStrongViews(SIDE, len(operations), magnitudes, operations=operations)
    return views.set_random_state(0).randomize(num, 1)


def test_without_settings_the_strong_operations_are_those_of_the_paper():
    assert strong_operations() == STRONG


def test_a_set_of_operations_is_all_that_strong_views_get(smooth):
    names = ("hed", "rotate")
    operations = strong_operations(names)
    assert sorted(operation.name for operation in operations) == sorted(names)
    views = WeakStrongViews(SIDE, 1, operations=operations).set_random_state(0)
    drawn = views.randomize(400, 1)
    moved = geometry_changed(drawn)
    assert 140 < moved.sum() < 260
    assert ((drawn.strong.schedule[:, 0] == 0) == ~moved).all()
    relative = np.linalg.solve(drawn.weak.matrices.numpy(), drawn.strong.matrices.numpy())[:, 0]
    assert np.allclose(relative @ relative.transpose(0, 2, 1), np.eye(3))
    with pytest.raises(InputError, match=r"n_aug: got 3\. Fix: use 1 to 2"):
        WeakStrongViews(SIDE, 3, operations=operations)


def test_limits_are_filled_uniformly_where_values_are_only_reached():
    def magnification(limits):
        drawn = drawn_with(strong_operations(("affine",), limits=limits), magnitudes=(10, 10))
        relative = np.linalg.solve(drawn.weak.matrices.numpy(), drawn.strong.matrices.numpy())
        return 1 / np.sqrt(np.linalg.det(relative)).ravel()

    assert np.allclose(np.abs(magnification(()) - 1), 0.6)
    within = magnification(("affine",))
    assert scipy.stats.kstest(within, scipy.stats.uniform(0.4, 1.2).cdf).pvalue > 0.01


def test_hue_and_affine_scale_end_where_they_are_set_to():
    operations = strong_operations(("hue_saturation", "affine"), affine_scale=(0.0, 0.2), hue=(0.0, 0.05))
    drawn = drawn_with(operations, magnitudes=(4, 4))
    assert np.allclose(drawn_by(HueSaturation, drawn.strong)[..., 0].abs(), 0.05 * 0.4)
    relative = np.linalg.solve(drawn.weak.matrices.numpy(), drawn.strong.matrices.numpy())
    assert np.allclose(np.abs(1 / np.sqrt(np.linalg.det(relative)) - 1), 0.2 * 0.4)


def test_limits_take_as_many_draws_as_values():
    names = [name for name in OPERATIONS if name not in ("flip", "blur")]
    states = []
    for limits in ((), names):
        views = WeakStrongViews(SIDE, 7, operations=strong_operations(limits=limits)).set_random_state(5)
        drawn = views.randomize(9, 2)
        states.append((views.R.rand(), drawn.weak.matrices, drawn.strong.schedule.tolist()))
    assert states[0][0] == states[1][0]
    assert torch.equal(states[0][1], states[1][1])
    assert states[0][2] == states[1][2]


@pytest.mark.parametrize(("mpp", "radius"), [(0.25, 3), (0.5, 2), (1.0, 1), (0.1, 8)])
def test_a_blur_in_micrometers_is_the_paper_s_kernel_at_its_quarter_of_a_micrometer(mpp, radius):
    (blur,) = strong_operations(("blur",), mpp=mpp)
    (drawn,) = drawn_with((blur,), num=1, magnitudes=(10, 10)).strong.parameters
    half = drawn[0, 0].numpy()
    impulse = np.zeros(41)
    impulse[20] = 1
    # OpenCV's standard deviation of a kernel of 7: 1.4 pixels of 0.25 µm.
    expected = scipy.ndimage.gaussian_filter1d(impulse, 1.4 * 0.25 / mpp, radius=radius)
    assert np.allclose(half, expected[20 : 21 + radius])
    assert len(half) == radius + 1


def test_both_executions_agree_on_a_blur_in_micrometers(smooth):
    views = WeakStrongViews(SIDE, 1, operations=strong_operations(("blur",), mpp=0.1)).set_random_state(0)
    drawn = views.randomize(len(smooth), 1)
    _, strong = views.apply(smooth, drawn)
    expected = with_torch.augment(smooth.flatten(0, 1), drawn.strong, torch.empty(0), SIDE)
    assert torch.allclose(strong.flatten(0, 1), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"names": ("rotate", "twirl")}, "got twirl.*rotate"),
        ({"limits": ("twirl",)}, "got twirl"),
        ({"names": ("rotate", "rotate")}, "name each once"),
        ({"hue": (0.0, 0.6)}, "hue: got"),
        ({"affine_scale": (0.5, 1.0)}, "affine_scale: got"),
        ({"mpp": 0.0}, "mpp: got"),
    ],
)
def test_impossible_strong_operations_are_named(settings, message):
    with pytest.raises(InputError, match=message):
        strong_operations(**settings)
