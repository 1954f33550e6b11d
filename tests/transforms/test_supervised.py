import numpy as np
import pytest
import torch

from histo_monai.transforms.distributions import Uniform
from histo_monai.transforms.fixed_views import unaugmented_view
from histo_monai.transforms.operations.geometric import Crop, Rotate, Scale
from histo_monai.transforms.supervised import SUPERVISED, SupervisedAugmentation, stains
from histo_monai.utils.stains import RGB_FROM_HED

SIDE = 32


@pytest.fixture
def patches():
    """Red grows to the right, green downwards, blue is constant: the pixels say where they come from."""
    axis = 40 + 160 * (2 * torch.arange(SIDE) + 1) / (2 * SIDE)
    down, right = torch.meshgrid(axis, axis, indexing="ij")
    image = torch.stack([right, down, torch.full_like(right, 90)])
    return image.round().to(torch.uint8).expand(40, 2, 3, SIDE, SIDE)


def operations(rotation_deg=90.0, scale=(0.8, 1.2), crop_area=(0.7, 1.0)):
    return Rotate(Uniform(-rotation_deg, rotation_deg)), Scale(Uniform(*scale)), Crop(Uniform(*crop_area))


def drawn_matrices(prob=1.0, **ranges):
    augment = SupervisedAugmentation(SIDE, prob, operations=operations(**ranges)).set_random_state(0)
    return augment.randomize(3000, 1).matrices[:, 0].numpy()


def test_angles_and_magnifications_fill_the_paper_s_ranges():
    matrices = drawn_matrices(crop_area=(1.0, 1.0))
    magnification = 1 / np.sqrt(np.linalg.det(matrices))
    angle = np.degrees(np.arctan2(matrices[:, 1, 0], matrices[:, 0, 0]))
    for values, low, high in ((magnification, 0.8, 1.2), (angle, -90, 90)):
        width = high - low
        assert low <= values.min() < low + 0.01 * width
        assert high - 0.01 * width < values.max() <= high
        assert values.mean() == pytest.approx((low + high) / 2, abs=0.03 * width)


def test_crops_fill_their_range_of_areas_and_lie_inside_the_image():
    matrices = drawn_matrices(rotation_deg=0.0, scale=(1.0, 1.0))
    areas = np.linalg.det(matrices)
    assert 0.7 <= areas.min() < 0.703
    assert 0.997 < areas.max() <= 1
    corners = matrices @ np.array([[-1, 1, -1, 1], [-1, -1, 1, 1], [1, 1, 1, 1]])
    assert np.abs(corners[:, :2]).max() <= 1 + 1e-12


def test_every_sample_gets_all_three_operations_and_with_a_probability_some_get_none():
    matrices = drawn_matrices(crop_area=(0.7, 0.9))
    identity = np.eye(3)
    assert np.abs(matrices - identity).max(axis=(1, 2)).min() > 1e-3
    assert np.abs(matrices[:, 0, 1]).min() > 0
    seldom = drawn_matrices(crop_area=(0.7, 0.9), prob=0.5)
    untouched = (np.abs(seldom - identity).max(axis=(1, 2)) < 1e-12).mean()
    # One half to the third power, and four standard deviations of it in 3000 samples.
    assert untouched == pytest.approx(1 / 8, abs=4 * np.sqrt(1 / 8 * 7 / 8 / 3000))


def test_views_are_moved_by_their_matrices_and_colors_stay(patches):
    augment = SupervisedAugmentation(SIDE).set_random_state(0)
    drawn = augment.randomize(*patches.shape[:2])
    views = augment.apply(patches, drawn).double().numpy() * 255
    axis = (2 * np.arange(SIDE) + 1) / SIDE - 1
    x, y = np.meshgrid(axis, axis)
    source = np.einsum("nsij,jhw->nsihw", drawn.matrices.numpy(), np.stack([x, y, np.ones_like(x)]))[:, :, :2]
    inside = (np.abs(source) < 0.9).all(axis=2)
    assert inside.mean() > 0.6
    # Bytes are rounded, and halving never happens at these scales.
    assert np.abs(views[:, :, :2] - (120 + 80 * source)).max(axis=2)[inside].max() < 0.6
    assert np.abs(views[:, :, 2] - 90).max() < 1e-4
    assert views.shape == (40, 2, 3, SIDE, SIDE)


def test_probability_zero_gives_the_unaugmented_view_at_any_size(patches):
    for size_px in (SIDE, SIDE // 2, SIDE + 8):
        views = SupervisedAugmentation(size_px, prob=0.0).set_random_state(0)(patches)
        assert views.dtype == torch.float32
        assert torch.allclose(views, unaugmented_view(patches, size_px), atol=1e-5)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(patches):
    augment = SupervisedAugmentation(SIDE)
    first = augment.set_random_state(1)(patches)
    assert torch.equal(first, SupervisedAugmentation(SIDE).set_random_state(1)(patches))
    assert not torch.equal(first, augment(patches))


def test_some_of_the_samples_come_out_as_in_the_whole_batch(patches):
    augment = SupervisedAugmentation(SIDE).set_random_state(0)
    drawn = augment.randomize(*patches.shape[:2])
    whole = augment.apply(patches, drawn)
    assert torch.equal(augment.apply(patches[5:9], drawn.rows(slice(5, 9))), whole[5:9])


@pytest.mark.parametrize(
    ("name", "value"), [("prob", -0.1), ("unaugmented_fraction", 1.1), ("stain_jitter", -0.1)]
)
def test_impossible_fractions_are_named(name, value):
    with pytest.raises(ValueError, match=name):
        SupervisedAugmentation(SIDE, **{name: value})


def test_the_policy_is_that_of_the_paper():
    assert operations() == SUPERVISED


def unaugmented_ones(augment, num_samples):
    drawn = augment.randomize(num_samples, 2)
    same = (drawn.matrices == torch.eye(3, dtype=torch.float64)).flatten(1).all(dim=1)
    return same.numpy()


def test_one_view_in_three_is_unaugmented_in_every_batch_and_at_no_place_more_often():
    augment = SupervisedAugmentation(SIDE, unaugmented_fraction=1 / 3).set_random_state(0)
    unaugmented = np.array([unaugmented_ones(augment, 16) for _ in range(1500)])
    # A third of 16 is between 5 and 6, and on the average exact, in batches of one image too.
    assert set(unaugmented.sum(axis=1)) == {5, 6}
    assert unaugmented.mean(axis=1).mean() == pytest.approx(1 / 3, abs=4 * 0.5 / 16 / np.sqrt(1500))
    assert np.abs(unaugmented.mean(axis=0) - 1 / 3).max() < 4 * np.sqrt(2 / 9 / 1500)
    alone = np.mean([unaugmented_ones(augment, 1)[0] for _ in range(1500)])
    assert alone == pytest.approx(1 / 3, abs=4 * np.sqrt(2 / 9 / 1500))


def test_unaugmented_views_are_those_of_the_tests_and_the_others_stay_as_they_were(patches):
    augment = SupervisedAugmentation(SIDE, unaugmented_fraction=0.5).set_random_state(0)
    drawn = augment.randomize(*patches.shape[:2])
    without = SupervisedAugmentation(SIDE).set_random_state(0).randomize(*patches.shape[:2])
    unaugmented = (drawn.matrices == torch.eye(3, dtype=torch.float64)).flatten(1).all(dim=1)
    assert unaugmented.sum() == 20
    assert torch.equal(drawn.matrices[~unaugmented], without.matrices[~unaugmented])
    views = augment.apply(patches, drawn)
    assert torch.allclose(views[unaugmented], unaugmented_view(patches, SIDE)[unaugmented], rtol=0, atol=1e-6)
    assert SupervisedAugmentation(SIDE, unaugmented_fraction=1.0).randomize(
        8, 1
    ).matrices.unique().tolist() == [0, 1]


def test_stains_change_within_their_bounds_and_geometry_as_it_did():
    color = torch.tensor([0.80, 0.55, 0.70])
    flat = (color.view(1, 1, 3, 1, 1).expand(64, 1, 3, SIDE, SIDE) * 255).round().to(torch.uint8)
    color = flat[0, 0, :, 0, 0] / 255
    augment = SupervisedAugmentation(SIDE, unaugmented_fraction=0.25, stain_jitter=0.1).set_random_state(0)
    views = augment(flat).squeeze(1)
    assert torch.allclose(views, views[:, :, :1, :1], atol=1e-5)  # an even patch stays even
    seen = views[:, :, 0, 0]
    unaugmented = (seen - color).abs().amax(dim=1) < 1e-5
    assert unaugmented.sum() == 16
    assert len(seen[~unaugmented].unique(dim=0)) == 48

    hed = torch.tensor(RGB_FROM_HED, dtype=torch.float64)
    densities = torch.linalg.solve(hed.T, -color.double().log10())  # of hematoxylin, eosin, DAB
    corners = torch.cartesian_prod(*[torch.tensor([-0.1, 0.1], dtype=torch.float64)] * 6)
    changed = (1 + corners[:, :3]) * densities + corners[:, 3:]
    extremes = (10 ** -(changed @ hed)).clamp(max=1)
    lowest, highest = extremes.amin(dim=0) * 0.9, (extremes.amax(dim=0) * 1.1).clamp(max=1)
    slack = (
        0.1 * (highest - lowest).max()
    )  # contrast moves each channel towards the gray of the patch, or away
    assert (seen >= lowest - slack).all()
    assert (seen <= highest + slack).all()
    assert stains(0) == ()
