import dataclasses
import math

import numpy as np
import pytest
import torch
from monai.transforms import RandomizableTransform

from histo_monai.data.simulated.datasets import kather
from histo_monai.transforms import with_torch
from histo_monai.transforms.operations.hue_saturation import HueSaturation
from histo_monai.transforms.operations.noise import Noise, pool_length
from histo_monai.transforms.randaugment import STRONG, WeakStrongViews
from histo_monai.transforms.sequence import UNUSED
from tests.transforms.policies import drawn_by, geometry_changed, number_of

SIDE = 32
MAGNITUDES = np.arange(1, 11)

OPERATIONS = tuple(operation.name for operation in STRONG)

# The paper's section "Implementation details", and its reading where it is silent: `WeakStrongViews`.
ENDS = {
    "rotate": {"degrees": 90.0},
    "scale": {"factor": 0.2},
    "affine": {"shift": 0.1, "factor": 0.6, "degrees": 90.0},
    "flip": {},
    "crop": {"area": 0.7},
    "noise": {"sigma": 0.1},
    "hue_saturation": {"hue": 0.5, "saturation": 1.0},
    "brightness_contrast": {"brightness": 0.2, "contrast": 0.2},
    "blur": {"kernel": 7},
    "hed": {"factor": 0.035, "shift": 0.035},
}


def strengths(name, magnitudes):
    """What an operation's quantities are at a magnitude, but for their random signs and what they depart from."""
    operation = STRONG[OPERATIONS.index(name)]
    values = {field.name: getattr(operation, field.name) for field in dataclasses.fields(operation)}
    return {name: value.at(magnitudes) for name, value in values.items() if hasattr(value, "at")}


@pytest.fixture(scope="module")
def tissue():
    """One simulated patch of each of the nine classes, every fourth pixel."""
    patient = next(patient for patient in kather.patients(3, 900) if len(patient.patches) >= 9)
    nine = dataclasses.replace(patient, patches=patient.patches[:9])
    images = torch.from_numpy(np.stack(kather.render_patches(nine)))
    return images.permute(0, 3, 1, 2)[:, None, :, ::4, ::4].contiguous()


def test_the_views_follow_the_monai_protocol():
    views = WeakStrongViews(SIDE, 7)
    assert isinstance(views, RandomizableTransform)
    assert views.set_random_state(3) is views


def test_the_ten_operations_are_those_of_the_paper():
    assert set(OPERATIONS) == set(ENDS)
    assert len(OPERATIONS) == 10


@pytest.mark.parametrize("operation", OPERATIONS)
def test_magnitude_ten_reaches_the_end_of_the_range_exactly(operation):
    assert strengths(operation, 10) == ENDS[operation]


def test_magnitude_one_of_affine_is_the_paper_s_lower_limit():
    mildest = strengths("affine", 1)
    assert mildest["shift"] == pytest.approx(0.01)
    assert mildest["factor"] == pytest.approx(0.51)
    assert mildest["degrees"] == pytest.approx(9)


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name not in ("flip", "blur")])
def test_strengths_are_linear_in_the_magnitude(operation):
    for values in strengths(operation, MAGNITUDES).values():
        steps = np.diff(values)
        assert np.allclose(steps, steps[0])
        assert steps[0] != 0


def test_the_kernel_of_the_blur_has_two_steps():
    assert strengths("blur", MAGNITUDES)["kernel"].tolist() == [5] * 5 + [7] * 5


def changes(patches, operation, monkeypatch):
    """Mean pixel change of one operation at magnitudes 1 to 10, on the same draws of base, signs and places."""
    only = OPERATIONS.index(operation)
    schedule = np.full((len(patches), 1), only)
    monkeypatch.setattr("histo_monai.transforms.randaugment.random_distinct_schedule", lambda *_: schedule)
    means = []
    for magnitude in MAGNITUDES.tolist():
        views = WeakStrongViews(SIDE, 1, (magnitude, magnitude)).set_random_state(0)
        weak, strong = views(patches)
        means.append((strong - weak).abs().mean().item())
    return np.array(means)


# Nuclei are uncorrelated once moved by their own size: turns of 9° or 90° are measured on smooth fields.
@pytest.mark.parametrize(
    ("content", "operation"),
    [("smooth", operation) for operation in OPERATIONS]
    + [("tissue", operation) for operation in OPERATIONS if operation not in ("rotate", "affine")],
)
def test_the_mean_pixel_change_grows_with_the_magnitude(operation, content, request, monkeypatch):
    images = request.getfixturevalue(content)
    patches = images.repeat(576 // len(images), 1, 1, 1, 1)  # many signs and places for each
    steps = np.diff(changes(patches, operation, monkeypatch)) * 255
    if operation == "flip":
        assert np.abs(steps).max() < 1e-6
    elif operation == "blur":
        assert steps[4] > 0.1
        assert np.abs(np.delete(steps, 4)).max() < 1e-6
    else:
        assert steps.min() > 0


def test_one_operation_is_one_operation():
    drawn = WeakStrongViews(SIDE, 1).set_random_state(0).randomize(1000, 1)
    photometric_ones = (drawn.strong.schedule != UNUSED).sum(axis=1)
    assert (photometric_ones + geometry_changed(drawn) == 1).all()
    assert 400 < photometric_ones.sum() < 600


@pytest.mark.parametrize("n_aug", [2, 7, 10])
def test_operations_are_different_and_n_aug_of_them_are_drawn_uniformly(n_aug):
    drawn = WeakStrongViews(SIDE, n_aug).set_random_state(0).randomize(4000, 1)
    schedule = drawn.strong.schedule
    counts = np.stack([(schedule == operation).sum(axis=1) for operation in range(5)])
    assert counts.max() == 1
    # Of n_aug different ones at least n_aug - 5 and at most 5 are photometric; all of them leave the geometry alone.
    total = counts.sum(axis=0)
    assert total.min() == max(0, n_aug - 5)
    assert total.max() == min(5, n_aug)
    assert (geometry_changed(drawn) == (total < n_aug)).all()
    fraction = n_aug / 10
    assert np.abs(counts.mean(axis=1) - fraction).max() <= 4 * math.sqrt(fraction * (1 - fraction) / 4000)


def test_magnitudes_are_drawn_uniformly_from_one_to_ten_for_each_operation_of_each_patch():
    drawn = WeakStrongViews(SIDE, 7).set_random_state(0).randomize(2500, 2)
    sigma = drawn_by(Noise, drawn.strong)[..., 0].numpy()
    saturation = drawn_by(HueSaturation, drawn.strong)[..., 1].numpy()
    by_noise, by_saturation = np.abs(sigma) * 100, np.abs(saturation) * 10
    for magnitudes in (by_noise, by_saturation):
        assert np.allclose(magnitudes, magnitudes.round())
        counts = np.bincount(magnitudes.round().astype(int).ravel(), minlength=11)
        assert counts[0] == 0
        assert np.abs(counts[1:] - 500).max() < 4 * math.sqrt(5000 * 0.1 * 0.9)
    assert (sigma < 0).mean() == pytest.approx(0.5, abs=0.03)
    assert abs(np.corrcoef(by_noise.ravel(), by_saturation.ravel())[0, 1]) < 0.06
    assert abs(np.corrcoef(by_noise[:, 0], by_noise[:, 1])[0, 1]) < 0.08


def test_the_weak_view_is_a_crop_inside_the_image_and_half_of_them_are_mirrored():
    weak = WeakStrongViews(SIDE, 7).set_random_state(0).randomize(3000, 1).weak
    assert weak.schedule.shape == (3000, 0)
    matrices = weak.matrices[:, 0].numpy()
    determinant = np.linalg.det(matrices)
    assert (determinant < 0).mean() == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(3000))
    assert 0.7 <= np.abs(determinant).min() < 0.703
    assert 0.997 < np.abs(determinant).max() <= 1
    assert not matrices[:, [0, 1], [1, 0]].any()
    reach = np.abs(matrices[:, :2, :2]).sum(axis=2) + np.abs(matrices[:, :2, 2])
    assert reach.max() <= 1 + 1e-12


def test_the_strong_view_is_its_operations_on_top_of_the_base_crop():
    # At magnitude 4, seen from the weak view: a turn by 36°, a scale of 1 ± 0.08, 1 ± 0.54, an area of 0.88, a mirror.
    drawn = WeakStrongViews(SIDE, 1, (4, 4)).set_random_state(0).randomize(400, 1)
    moved = geometry_changed(drawn)
    relative = np.linalg.solve(drawn.weak.matrices.numpy(), drawn.strong.matrices.numpy())[moved, 0]
    determinant = np.linalg.det(relative)
    turned = np.degrees(np.arctan2(relative[:, 1, 0], relative[:, 0, 0]))
    result = {
        "left": np.isclose(determinant, 1) & np.isclose(turned, -36),
        "right": np.isclose(determinant, 1) & np.isclose(turned, 36),
        "larger": np.isclose(determinant, 1.08**-2),
        "smaller": np.isclose(determinant, 0.92**-2),
        "affine, larger": np.isclose(determinant, 1.54**-2) & np.isclose(np.abs(turned), 36),
        "affine, smaller": np.isclose(determinant, 0.46**-2) & np.isclose(np.abs(turned), 36),
        "flip": np.isclose(relative, np.diag([-1, 1, 1]), atol=1e-9).all(axis=(1, 2)),
        "crop": np.isclose(determinant, 0.88) & np.isclose(turned, 0),
    }
    counts = {name: rows.sum() for name, rows in result.items()}
    assert sum(counts.values()) == len(relative)
    assert min(counts.values()) > 10


def test_a_strong_view_without_geometry_is_the_weak_view_after_its_operations(smooth):
    patches = smooth.repeat(8, 1, 1, 1, 1)
    views = WeakStrongViews(SIDE, 3).set_random_state(0)
    drawn = views.randomize(len(patches), 1)
    weak, strong = views.apply(patches, drawn)
    generator = torch.Generator().manual_seed(drawn.strong.noise_seed)
    normals = torch.randn(pool_length(SIDE), generator=generator)
    rows = np.flatnonzero(~geometry_changed(drawn))
    assert len(rows) > 10
    for row in rows:
        expected = weak[row]
        for step in drawn.strong.schedule[row]:
            if step != UNUSED:
                parameters = drawn.strong.parameters[step][row].float()
                expected = drawn.strong.operations[step].with_torch(expected, parameters, normals)
        assert torch.allclose(strong[row], expected, atol=3e-5)
        assert (strong[row] - weak[row]).abs().max() > 1e-3


def test_row_i_of_both_views_shows_image_i():
    number = torch.arange(200)
    colors = torch.stack([number, 255 - number, 7 * number % 256], dim=1).to(torch.uint8)
    patches = colors[:, None, :, None, None].expand(200, 1, 3, SIDE, SIDE)
    views = WeakStrongViews(SIDE, 2).set_random_state(0)
    drawn = views.randomize(200, 1)
    expected = patches.float() / 255
    weak, strong = views.apply(patches, drawn)
    assert torch.allclose(weak, expected, atol=1e-6)
    recognizable = torch.from_numpy((drawn.strong.schedule == UNUSED).all(axis=1))
    assert recognizable.sum() > 25
    assert torch.allclose(strong[recognizable], expected[recognizable], atol=1e-6)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(smooth):
    views = WeakStrongViews(SIDE, 7)
    first = views.set_random_state(1)(smooth)
    again = WeakStrongViews(SIDE, 7).set_random_state(1)(smooth)
    for one, same, other in zip(first, again, views(smooth), strict=True):
        assert one.dtype == torch.float32
        assert one.shape == smooth.shape
        assert one.min() >= 0
        assert one.max() <= 1
        assert torch.equal(one, same)
        assert not torch.equal(one, other)


def test_a_batch_leaves_the_same_state_behind_whatever_n_aug_and_magnitudes_are():
    few, many = WeakStrongViews(SIDE, 1, (3, 5)), WeakStrongViews(SIDE, 10)
    weak = [views.set_random_state(5).randomize(9, 2).weak.matrices for views in (few, many)]
    assert torch.equal(*weak)
    assert few.R.rand() == many.R.rand()


def test_some_of_the_samples_come_out_as_in_the_whole_batch_but_for_the_noise(smooth):
    views = WeakStrongViews(SIDE, 5).set_random_state(0)
    drawn = views.randomize(len(smooth), 1)
    weak, strong = views.apply(smooth, drawn)
    noisy = torch.from_numpy((drawn.strong.schedule == number_of(Noise, drawn.strong)).any(axis=1))
    for samples in (slice(0, 9), slice(9, 32)):
        own_weak, own_strong = views.apply(smooth[samples], drawn.rows(samples))
        same = ~noisy[samples] if samples.start else slice(None)
        assert torch.equal(own_weak, weak[samples])
        assert torch.equal(own_strong[same], strong[samples][same])
    # Noise of another seed, but of the same sigma.
    assert not torch.equal(own_strong[noisy[samples]], strong[samples][noisy[samples]])


def test_larger_patches_come_out_at_the_size_asked_for(smooth):
    small = WeakStrongViews(SIDE // 2, 7, crop_area=(1.0, 1.0)).set_random_state(0)
    weak, strong = small(smooth)
    assert weak.shape == strong.shape == (32, 1, 3, SIDE // 2, SIDE // 2)
    halved = (
        smooth.float().unflatten(-1, (SIDE // 2, 2)).unflatten(-3, (SIDE // 2, 2)).mean(dim=(-3, -1)) / 255
    )
    either = torch.minimum(
        (weak - halved).abs().amax((2, 3, 4)), (weak - halved.flip(-1)).abs().amax((2, 3, 4))
    )
    assert either.max() < 1e-5


def test_opencv_and_torch_agree_on_both_views(smooth):
    views = WeakStrongViews(SIDE, 7).set_random_state(0)
    drawn = views.randomize(len(smooth), 1)
    generator = torch.Generator().manual_seed(drawn.strong.noise_seed)
    pool = torch.randn(pool_length(SIDE), generator=generator)
    for ours, own in zip(views.apply(smooth, drawn), (drawn.weak, drawn.strong), strict=True):
        expected = with_torch.augment(smooth.flatten(0, 1), own, pool, SIDE).unflatten(0, (len(smooth), 1))
        assert torch.allclose(ours, expected, atol=2e-3)
        assert (ours - expected).abs().mean() < 2e-5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_aug", 0),
        ("n_aug", 11),
        ("magnitudes", (0, 10)),
        ("magnitudes", (7, 3)),
        ("magnitudes", (1, 11)),
        ("crop_area", (0.7, 1.1)),
        ("size_px", 3),
    ],
)
def test_impossible_numbers_are_named(name, value):
    with pytest.raises(ValueError, match=name):
        WeakStrongViews(**{"size_px": SIDE, "n_aug": 7, name: value})


def test_batches_of_another_kind_are_refused():
    with pytest.raises(ValueError, match="expected, got"):
        WeakStrongViews(8, 7)(torch.zeros(2, 1, 3, 8, 8))
