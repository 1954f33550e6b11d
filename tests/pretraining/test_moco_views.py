import numpy as np
import pytest
import torch

from histo_monai.pretraining.contrastive_views import ContrastiveViews
from histo_monai.transforms import geometry
from histo_monai.transforms.fixed_views import unaugmented_view
from histo_monai.transforms.operations.brightness_contrast import BrightnessContrast
from histo_monai.transforms.operations.hue_saturation import HueSaturation

SIDE = 32

HUE_SATURATION, BRIGHTNESS_CONTRAST = 0, 1
NO_COLOR = {"jitter": (1.0, 1.0), "hue": 0.0}


@pytest.fixture
def patches():
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(8, 3, 8, 8, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=(SIDE, SIDE), mode="bilinear")
    return (40 + 180 * smooth[:, None]).to(torch.uint8)


def drawn(num=4000, **settings):
    pair = ContrastiveViews(SIDE, **settings).set_random_state(0).randomize(num, 1)
    return pair.query, pair.key


@pytest.mark.parametrize("view", [0, 1], ids=["query", "key"])
def test_magnitudes_fill_the_paper_s_ranges(view):
    own = drawn()[view]
    hue_saturation, brightness_contrast = (
        own.parameters[number] for number in (HUE_SATURATION, BRIGHTNESS_CONTRAST)
    )
    areas = torch.linalg.det(own.matrices).abs()
    for values, low, high in (
        (areas, 0.7, 1.0),
        (hue_saturation[..., 0], -0.4, 0.4),
        (1 + hue_saturation[..., 1], 0.6, 1.4),
        (brightness_contrast[..., 0], 0.6, 1.4),
        (brightness_contrast[..., 1], 0.6, 1.4),
    ):
        width = high - low
        assert low - 1e-9 <= values.min() < low + 0.01 * width
        assert high - 0.01 * width < values.max() <= high + 1e-9
        assert values.mean() == pytest.approx((low + high) / 2, abs=0.03 * width)


def test_a_view_is_turned_by_any_angle_and_mirrored_in_half_of_the_cases():
    matrices = drawn(crop_area=(1.0, 1.0))[0].matrices[:, 0]
    mirrored = torch.linalg.det(matrices) < 0
    assert mirrored.float().mean() == pytest.approx(0.5, abs=0.03)
    assert torch.equal(matrices[:, :2, 2], torch.zeros(len(matrices), 2, dtype=torch.float64))
    # Rotation and two flips, evenly drawn: each quarter of the circle gets a quarter, mirrored or not.
    angles = torch.atan2(matrices[:, 1, 0], matrices[:, 0, 0])
    for own in (angles[mirrored], angles[~mirrored]):
        counts = torch.histc(own, bins=8, min=-torch.pi, max=torch.pi)
        expected = len(own) / 8
        assert (
            (counts - expected) ** 2 / expected
        ).sum() < 24.3  # chi-squared, 7 degrees of freedom, p = 0.001


def test_rotation_comes_before_the_flips_and_the_crop_last():
    augment = ContrastiveViews(SIDE).set_random_state(0)
    matrix = augment.randomize(1, 1).query.matrices[0, 0]
    state = np.random.RandomState(0)
    ends = ((0, 360), (0, 1), (0, 1), (0.7, 1.0), (-1, 1))
    angle, down, across, area, stretch = torch.from_numpy(np.array([state.uniform(*each) for each in ends]))
    sides = geometry.crop_sides(area, stretch)
    expected = (
        geometry.rotation_matrix(angle)
        @ geometry.flip_matrix(down < 0.5, vertical=True)
        @ geometry.flip_matrix(across < 0.5)
        @ geometry.crop_matrix(sides, torch.from_numpy(state.uniform(0, 1, 2)))
    )
    torch.testing.assert_close(matrix, expected)


def test_both_orders_of_the_jitters_occur_and_nothing_else():
    for view in drawn():
        orders, counts = np.unique(view.schedule, axis=0, return_counts=True)
        assert sorted(map(tuple, orders)) == sorted(
            [(HUE_SATURATION, BRIGHTNESS_CONTRAST), (BRIGHTNESS_CONTRAST, HUE_SATURATION)]
        )
        assert counts / counts.sum() == pytest.approx([0.5, 0.5], abs=0.03)


def test_the_two_views_of_a_patch_are_drawn_independently():
    query, key = drawn()

    def columns(view):
        jitter = [view.parameters[number].flatten(1) for number in (HUE_SATURATION, BRIGHTNESS_CONTRAST)]
        return torch.cat([view.matrices[:, 0, :2].flatten(1), *jitter], dim=1).numpy()

    first, second = columns(query), columns(key)
    between = np.corrcoef(first, second, rowvar=False)[: first.shape[1], first.shape[1] :]
    # Five standard deviations of the correlation of 4000 independent pairs, over a hundred of them.
    assert np.abs(between).max() < 5 / np.sqrt(4000)
    assert np.abs(first - second).min() > 0


def test_views_are_one_warp_and_then_the_jitters_in_their_order(patches):
    augment = ContrastiveViews(SIDE).set_random_state(3)
    pair = augment.randomize(*patches.shape[:2])
    for view, own in zip(augment.apply(patches, pair), (pair.query, pair.key), strict=True):
        expected = geometry.warp(patches[:, 0], own.matrices[:, 0], SIDE)
        for row in range(len(patches)):
            image = expected[row : row + 1]
            for operation in own.schedule[row]:
                parameters = own.parameters[operation][row].float()
                kind = HueSaturation if operation == HUE_SATURATION else BrightnessContrast
                image = kind.with_torch(image, parameters, torch.empty(0))
            expected[row] = image[0]
        torch.testing.assert_close(view[:, 0], expected, atol=1e-4, rtol=0)
        assert view.dtype == torch.float32
        assert view.shape == patches.shape


def test_without_color_and_crop_a_right_angle_is_a_permutation_of_the_pixels(patches):
    augment = ContrastiveViews(SIDE, crop_area=(1.0, 1.0), **NO_COLOR).set_random_state(0)
    pair = augment.randomize(*patches.shape[:2])
    pair.query.matrices[:] = geometry.rotation_matrix(torch.tensor(90.0, dtype=torch.float64))
    view = augment.apply(patches, pair)[0]
    torch.testing.assert_close(view, unaugmented_view(patches, SIDE).rot90(1, (-2, -1)), atol=1e-4, rtol=0)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(patches):
    augment = ContrastiveViews(SIDE)
    first, again = augment.set_random_state(1)(patches), ContrastiveViews(SIDE).set_random_state(1)(patches)
    other = augment(patches)
    for view, same, different in zip(first, again, other, strict=True):
        assert torch.equal(view, same)
        assert not torch.equal(view, different)


def test_some_of_the_samples_come_out_as_in_the_whole_batch(patches):
    augment = ContrastiveViews(SIDE).set_random_state(0)
    pair = augment.randomize(*patches.shape[:2])
    whole = augment.apply(patches, pair)
    part = augment.apply(patches[3:6], pair.rows(slice(3, 6)))
    for view, own in zip(whole, part, strict=True):
        assert torch.equal(view[3:6], own)


def test_drawings_made_before_can_be_named_in_any_order(patches):
    augment = ContrastiveViews(SIDE).set_random_state(0)
    pair = augment.randomize(8, 1)
    numbers = torch.tensor([5, 0, 5, 7])
    whole, named = augment.apply(patches, pair), augment.apply(patches[numbers], pair.numbers(numbers))
    for view, own in zip(whole, named, strict=True):
        assert torch.equal(view[numbers], own)


@pytest.mark.parametrize(("name", "value"), [("crop_area", (0.0, 1.0)), ("jitter", (1.4, 0.6)), ("hue", 0.6)])
def test_impossible_ranges_of_pairs_are_named(name, value):
    with pytest.raises(ValueError, match=name):
        ContrastiveViews(SIDE, **{name: value})
