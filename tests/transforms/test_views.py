import numpy as np
import pytest
import torch
from monai.transforms import RandomizableTransform

from histo_monai.transforms import geometry
from histo_monai.transforms.fixed_views import unaugmented_view
from histo_monai.transforms.operations.blur import Blur
from histo_monai.transforms.operations.brightness_contrast import BrightnessContrast
from histo_monai.transforms.operations.hue_saturation import HueSaturation
from histo_monai.transforms.operations.noise import Noise
from histo_monai.transforms.sequence import UNUSED
from histo_monai.transforms.views import PRETRAINING, PretrainAugmentation
from histo_monai.utils.errors import InputError
from tests.transforms.policies import PAPER, drawn_by, number_of, operations

SIDE = 32

# Every range closed to "no change".
NOTHING = {
    "rotation_deg": 0.0,
    "scale": (1.0, 1.0),
    "affine_shift": 0.0,
    "affine_scale": 0.0,
    "affine_rotation_deg": 0.0,
    "crop_area": (1.0, 1.0),
    "noise_sigma": 0.0,
    "hue": 0.0,
    "saturation": 0.0,
    "brightness": 0.0,
    "contrast": 0.0,
    "blur_kernel": (1, 1),
    "hed": 0.0,
}

ONE_OPERATION = [
    {"rotation_deg": 90.0},
    {"scale": (0.8, 1.2)},
    {"affine_shift": 0.0625},
    {"affine_scale": 0.5},
    {"affine_rotation_deg": 45.0},
    {"crop_area": (0.7, 0.9)},
    {"noise_sigma": 0.1},
    {"hue": 0.1},
    {"saturation": 1.0},
    {"brightness": 0.2},
    {"contrast": 0.2},
    {"blur_kernel": (3, 7)},
    {"hed": 0.035},
]


@pytest.fixture
def patches():
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(6, 3, 8, 8, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=(SIDE, SIDE), mode="bilinear")
    triples = smooth[:, None].expand(
        6, 3, 3, SIDE, SIDE
    )  # three equal patches, to tell their magnitudes apart
    return (40 + 180 * triples).to(torch.uint8)


def test_the_augmentation_follows_the_monai_protocol():
    augment = PretrainAugmentation(SIDE)
    assert isinstance(augment, RandomizableTransform)
    assert augment.set_random_state(3) is augment
    assert augment.set_random_state(state=np.random.RandomState(3)) is augment


def test_views_are_floats_between_zero_and_one_and_leave_the_patches_alone(patches):
    before = patches.clone()
    result = PretrainAugmentation(SIDE, prob=0.9).set_random_state(0)(patches)
    assert result.shape == (6, 3, 3, SIDE, SIDE)
    assert result.dtype == torch.float32
    assert result.is_contiguous()
    assert result.isfinite().all()
    assert result.min() >= 0
    assert result.max() <= 1
    assert torch.equal(patches, before)


def test_a_network_can_learn_from_the_views(patches):
    result = PretrainAugmentation(SIDE).set_random_state(0)(patches).flatten(0, 1)
    convolution = torch.nn.Conv2d(3, 2, 3)
    convolution(result).square().mean().backward()
    assert convolution.weight.grad.abs().sum() > 0


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(patches):
    augment = PretrainAugmentation(SIDE)
    first = augment.set_random_state(1)(patches)
    assert torch.equal(first, PretrainAugmentation(SIDE).set_random_state(1)(patches))
    assert not torch.equal(first, augment(patches))
    assert not torch.equal(first, augment.set_random_state(2)(patches))


def test_a_batch_leaves_the_same_state_behind_whatever_was_selected(patches):
    seldom, often = PretrainAugmentation(SIDE, 0.0), PretrainAugmentation(SIDE, 1.0)
    seldom.set_random_state(5)(patches)
    often.set_random_state(5)(patches)
    assert seldom.R.rand() == often.R.rand()


def test_ranges_without_change_give_the_unaugmented_view(patches):
    # The flip has no range: two flips are none, so look at samples that drew it unmirrored too.
    augment = PretrainAugmentation(SIDE, 1.0, operations(**NOTHING)).set_random_state(0)
    assert torch.allclose(augment(patches).flip(-1), unaugmented_view(patches, SIDE), atol=1e-5)


def test_probability_zero_gives_the_unaugmented_view(patches):
    augmented = PretrainAugmentation(SIDE, 0.0).set_random_state(0)(patches)
    assert torch.allclose(augmented, unaugmented_view(patches, SIDE), atol=1e-6)


@pytest.mark.parametrize("one", ONE_OPERATION, ids=lambda one: next(iter(one)))
def test_every_operation_moves_pixels_with_its_own_magnitude_per_patch(patches, one):
    augmented = (
        PretrainAugmentation(SIDE, 1.0, operations(**{**NOTHING, **one}))
        .set_random_state(4)(patches)
        .flip(-1)
    )
    change = (augmented - unaugmented_view(patches, SIDE)).abs().flatten(2).mean(-1)
    assert (change > 1e-4).float().mean() > 0.9
    # The three patches of a sample are equal going in: only their magnitudes can tell them apart. Blur has but
    # three kernels, so some pairs agree.
    differs = (augmented[:, 0] - augmented[:, 1]).abs().flatten(1).amax(1) > 1e-4
    assert differs.float().mean() >= 0.5


def test_the_patches_of_a_sample_share_operations_and_order_and_samples_do_not():
    augment = PretrainAugmentation(
        SIDE, 0.5, operations(**{**NOTHING, "rotation_deg": 90.0})
    ).set_random_state(0)
    drawn = augment.randomize(64, 3)
    assert drawn.schedule.shape == (64, 5)
    assert len(np.unique(drawn.schedule, axis=0)) > 20
    # Rotated or not, flipped or not: of the 64 samples each patch tells the same.
    rotated = (drawn.matrices[..., 0, 1].abs() > 1e-9).numpy()
    mirrored = (torch.linalg.det(drawn.matrices) < 0).numpy()
    for shared in (rotated, mirrored):
        assert (shared == shared[:, :1]).all()
        assert 16 < shared[:, 0].sum() < 48
    angles = drawn.matrices[..., 0, 1][torch.from_numpy(rotated[:, 0])].abs()
    assert (angles[:, 0] - angles[:, 1]).abs().min() > 1e-6


def test_geometry_is_composed_in_the_drawn_order():
    # A flip before and after a rotation turn opposite ways: both orders must occur, and nothing else.
    augment = PretrainAugmentation(
        SIDE, 1.0, operations(**{**NOTHING, "rotation_deg": 90.0})
    ).set_random_state(0)
    seen = set()
    for _ in range(20):
        state = augment.R.get_state()
        (matrix,) = augment.randomize(1, 1).matrices[0]
        augment.R.set_state(state)
        augment.R.rand(1, 10), augment.R.rand(1, 10)
        angle = torch.from_numpy(augment.R.uniform(-90, 90, ()).reshape(()))
        rotation, flip = geometry.rotation_matrix(angle), geometry.flip_matrix(torch.tensor(True))
        first, second = torch.allclose(matrix, rotation @ flip), torch.allclose(matrix, flip @ rotation)
        assert first != second
        seen.add(first)
    assert seen == {True, False}


def test_photometric_operations_run_in_the_drawn_order(patches):
    settings = {**NOTHING, "saturation": 1.0, "blur_kernel": (7, 7)}
    augment = PretrainAugmentation(SIDE, 1.0, operations(**settings)).set_random_state(0)
    drawn = augment.randomize(*patches.shape[:2])
    hue_saturation, blur = number_of(HueSaturation, drawn), number_of(Blur, drawn)
    expected = unaugmented_view(patches, SIDE).flip(-1).flatten(0, 1)
    for row in range(len(expected)):
        image = expected[row : row + 1]
        for operation in drawn.schedule[row // 3]:
            parameters = drawn.parameters[operation].flatten(0, 1)[row : row + 1].float()
            if operation == hue_saturation:
                image = HueSaturation.with_torch(image, parameters, torch.empty(0))
            elif operation == blur:
                image = Blur.with_torch(image, parameters, torch.empty(0))
        expected[row] = image[0]
    assert torch.allclose(augment.apply(patches, drawn).flatten(0, 1), expected, atol=1e-5)
    assert len({tuple(order) for order in drawn.schedule}) > 1


def test_magnitudes_fill_the_paper_s_ranges():
    augment = PretrainAugmentation(SIDE, 1.0).set_random_state(0)
    drawn = augment.randomize(2000, 1)
    noise, hue_saturation, brightness_contrast, blur = (
        drawn_by(kind, drawn) for kind in (Noise, HueSaturation, BrightnessContrast, Blur)
    )
    for values, low, high in (
        (noise[..., 0].abs(), 0, 0.1),
        (hue_saturation[..., 0], -0.1, 0.1),
        (hue_saturation[..., 1], -1, 1),
        (brightness_contrast[..., 0], 0.8, 1.2),
        (brightness_contrast[..., 1], 0.8, 1.2),
    ):
        width = high - low
        assert low <= values.min() < low + 0.01 * width
        assert high - 0.01 * width < values.max() <= high
        assert values.mean() == pytest.approx((low + high) / 2, abs=0.03 * width)
    taps = (blur > 0).sum(-1).flatten() * 2 - 1
    assert torch.bincount(taps).nonzero().flatten().tolist() == [3, 5, 7]
    assert torch.bincount(taps)[[3, 5, 7]].min() > 590


def test_scale_magnifies_by_the_paper_s_factors():
    augment = PretrainAugmentation(
        SIDE, 1.0, operations(**{**NOTHING, "scale": (0.8, 1.2)})
    ).set_random_state(0)
    magnification = 1 / torch.linalg.det(augment.randomize(2000, 1).matrices[..., :2, :2]).abs().sqrt()
    assert 0.8 <= magnification.min() < 0.805
    assert 1.195 < magnification.max() <= 1.2


def test_the_company_of_other_samples_changes_no_pixel(patches):
    augment = PretrainAugmentation(SIDE, 0.8).set_random_state(0)
    drawn = augment.randomize(*patches.shape[:2])
    whole = augment.apply(patches, drawn)
    assert torch.equal(augment.apply(patches[:2], drawn.rows(slice(0, 2))), whole[:2])


def test_larger_patches_come_out_at_the_size_asked_for(patches):
    assert PretrainAugmentation(16).set_random_state(0)(patches).shape == (6, 3, 3, 16, 16)
    expected = patches.float().unflatten(-1, (16, 2)).unflatten(-3, (16, 2)).mean(dim=(-3, -1)) / 255
    assert torch.allclose(unaugmented_view(patches, 16), expected, atol=1e-6)


@pytest.mark.parametrize(
    "bad",
    [
        torch.zeros(2, 3, 3, 8, 8),
        torch.zeros(2, 3, 8, 8, dtype=torch.uint8),
        torch.zeros(2, 3, 1, 8, 8, dtype=torch.uint8),
        torch.zeros(2, 3, 3, 8, 9, dtype=torch.uint8),
    ],
    ids=["float", "no scales", "gray", "oblong"],
)
def test_batches_of_another_kind_are_refused(bad):
    with pytest.raises(ValueError, match="expected, got"):
        PretrainAugmentation(8)(bad)
    with pytest.raises(ValueError, match="expected, got"):
        unaugmented_view(bad, 8)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scale", (1.2, 0.8)),
        ("affine_scale", 1.2),
        ("saturation", 2.0),
        ("contrast", 1.1),
        ("noise_sigma", 1.5),
        ("blur_kernel", (2, 7)),
        ("crop_area", (0.0, 1.0)),
    ],
)
def test_impossible_ranges_are_named(name, value):
    with pytest.raises(ValueError, match=name):
        operations(**{name: value})


def test_an_impossible_probability_and_views_too_small_for_the_blur_are_named():
    with pytest.raises(InputError, match="prob"):
        PretrainAugmentation(SIDE, 1.5)
    with pytest.raises(ValueError, match=r"size_px: got .*at least 4"):
        PretrainAugmentation(3)


def test_the_policy_is_that_of_the_paper():
    assert operations(**PAPER) == PRETRAINING


def test_unused_steps_stand_at_the_end():
    schedule = PretrainAugmentation(SIDE).set_random_state(0).randomize(200, 1).schedule
    used = schedule != UNUSED
    assert (used[:, :-1] >= used[:, 1:]).all()
