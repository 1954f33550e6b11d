import math

import numpy as np
import pytest
import scipy.ndimage
import torch

from histo_monai.transforms import geometry

SIDE = 64


def picture(x, y):
    """A smooth function of normalized coordinates: its warped versions are known in closed form."""
    return 0.5 + 0.2 * np.sin(2.1 * x + 0.3) + 0.2 * np.cos(1.7 * y - 0.5) + 0.05 * x * y


def centers(side):
    axis = (2 * np.arange(side) + 1) / side - 1
    return np.meshgrid(axis, axis)


def image_of(function, side=SIDE):
    x, y = centers(side)
    return torch.from_numpy(function(x, y)).float().expand(1, 3, side, side)


def warped(image, matrix, side=SIDE):
    return geometry.warp(image, matrix[None] if matrix.ndim == 2 else matrix, side)


def test_rotation_turns_the_picture_counter_clockwise():
    # What points right (x = 0.5) before must point up (y = -0.5) after a quarter turn.
    image = image_of(lambda x, y: np.exp(-20 * ((x - 0.5) ** 2 + y**2)))
    turned = warped(image, geometry.rotation_matrix(torch.tensor(90.0)))
    assert torch.allclose(turned[0, 0], torch.rot90(image[0, 0], 1), atol=1e-4)


def test_a_shift_moves_the_picture_down_and_right():
    image = torch.zeros(1, 3, SIDE, SIDE)
    image[:, :, 10, 20] = 1
    moved = warped(image, geometry.shift_matrix(torch.tensor([8 / SIDE, 4 / SIDE])))
    assert torch.nonzero(moved[0, 0] > 0.5).tolist() == [[18, 24]]


def test_a_flip_mirrors_left_and_right_and_a_vertical_one_top_and_bottom():
    image = torch.rand(1, 3, SIDE, SIDE)
    yes = torch.tensor(True)
    assert torch.allclose(warped(image, geometry.flip_matrix(yes)), image.flip(-1), atol=1e-5)
    assert torch.allclose(warped(image, geometry.flip_matrix(yes, vertical=True)), image.flip(-2), atol=1e-5)
    assert torch.allclose(warped(image, geometry.flip_matrix(~yes)), image, atol=1e-5)


def test_scale_two_shows_the_central_half():
    scaled = warped(image_of(picture), geometry.scale_matrix(torch.tensor(2.0)))
    x, y = centers(SIDE)
    assert np.allclose(scaled[0, 0], picture(x / 2, y / 2), atol=2e-3)


def test_a_crop_stretches_exactly_its_box():
    # Rows 16-47 and columns 0-31 of 64 are half the side; the box sits at the left edge, in the middle of the rows.
    image = torch.rand(1, 3, SIDE, SIDE)
    matrix = geometry.crop_matrix(torch.tensor([0.5, 0.5]), torch.tensor([0.5, 0.0]))
    cut = geometry.warp(image, matrix[None], SIDE // 2)
    assert torch.allclose(cut, image[:, :, 16:48, 0:32], atol=1e-5)


def test_crop_boxes_have_their_area_and_a_bounded_aspect_ratio_and_fit():
    generator = torch.Generator().manual_seed(0)
    areas = torch.rand(500, generator=generator, dtype=torch.float64) * 0.92 + 0.08
    stretches = torch.rand(500, generator=generator, dtype=torch.float64) * 2 - 1
    sides = geometry.crop_sides(areas, stretches)
    assert torch.allclose(sides.prod(-1), areas)
    assert sides.max() <= 1 + 1e-12
    ratio = sides[:, 1] / sides[:, 0]
    assert ratio.max() <= 4 / 3 + 1e-9
    assert ratio.min() >= 3 / 4 - 1e-9
    assert ratio.max() > 1.3
    assert ratio.min() < 0.77


def test_composed_matrices_act_in_the_order_given():
    shift, turn = torch.tensor([0.25, 0.0], dtype=torch.float64), torch.tensor(90.0, dtype=torch.float64)
    first_shift = geometry.compose([geometry.shift_matrix(shift), geometry.rotation_matrix(turn)])
    # The center goes down by a quarter of the side (y = 0.5), which the quarter turn then carries to x = +0.5.
    where = torch.linalg.solve(first_shift, torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64))
    assert torch.allclose(where, torch.tensor([0.5, 0.0, 1.0], dtype=torch.float64), atol=1e-12)


def test_one_composed_warp_equals_the_warps_in_sequence_and_the_closed_form():
    steps = [
        geometry.rotation_matrix(torch.tensor(20.0, dtype=torch.float64)),
        geometry.scale_matrix(torch.tensor(1.4, dtype=torch.float64)),
        geometry.shift_matrix(torch.tensor([0.03, -0.05], dtype=torch.float64)),
        geometry.flip_matrix(torch.tensor(True)),
        geometry.crop_matrix(
            torch.tensor([0.9, 0.8], dtype=torch.float64), torch.tensor([0.3, 0.6], dtype=torch.float64)
        ),
    ]
    composed = geometry.compose(steps)
    at_once = warped(image_of(picture), composed)[0, 0].numpy()
    in_turn = image_of(picture)
    for step in steps:
        in_turn = warped(in_turn, step)
    x, y = centers(SIDE)
    source = np.einsum("ij,jhw->ihw", composed.numpy(), np.stack([x, y, np.ones_like(x)]))
    inside = (np.abs(source[:2]) < 0.9).all(axis=0)
    assert inside.mean() > 0.9
    truth = picture(source[0], source[1])
    assert np.abs(at_once - truth)[inside].max() < 1e-3
    assert np.abs(in_turn[0, 0].numpy() - truth)[inside].max() < 5e-3


def test_the_warp_agrees_with_scipy_at_and_beyond_the_border():
    image = torch.rand(1, 3, 20, 20, generator=torch.Generator().manual_seed(1))
    matrix = geometry.compose(
        [geometry.rotation_matrix(torch.tensor(33.0)), geometry.shift_matrix(torch.tensor([0.2, -0.3]))]
    )
    x, y = centers(20)
    source = np.einsum("ij,jhw->ihw", matrix.numpy(), np.stack([x, y, np.ones_like(x)]))
    rows, columns = ((source[1] + 1) * 20 - 1) / 2, ((source[0] + 1) * 20 - 1) / 2
    expected = scipy.ndimage.map_coordinates(image[0, 0].numpy(), [rows, columns], order=1, mode="reflect")
    assert np.allclose(warped(image, matrix, 20)[0, 0], expected, atol=1e-4)


def test_halving_is_the_mean_over_two_by_two_pixels():
    image = torch.randint(0, 256, (1, 3, 32, 32), dtype=torch.uint8)
    halved = geometry.warp(image, torch.eye(3)[None], 16)
    expected = image.float().reshape(3, 16, 2, 16, 2).mean(dim=(2, 4)) / 255
    assert torch.allclose(halved[0], expected, atol=1e-6)


def test_shrinking_averages_instead_of_skipping_pixels():
    # A chequerboard of single pixels is gray from afar; skipping pixels would leave black, white or moiré.
    rows, columns = torch.meshgrid(torch.arange(64), torch.arange(64), indexing="ij")
    board = ((rows + columns) % 2).float().expand(1, 3, 64, 64)
    shrunk = warped(board, geometry.scale_matrix(torch.tensor(0.45)))
    assert (shrunk - 0.5).abs().max() < 1e-5


@pytest.mark.parametrize(("scale", "level"), [(2.0, 0), (1.0, 0), (0.8, 0), (0.6, 1), (0.4, 1), (0.3, 2)])
def test_the_pooling_level_is_the_rounded_log2_of_the_minification(scale, level):
    assert level == round(max(0.0, -math.log2(scale)))
    matrix = geometry.scale_matrix(torch.tensor([scale]))
    assert geometry.pooling_levels(matrix, 64, 64).tolist() == [level]


def test_an_odd_image_keeps_its_center_when_it_is_pooled():
    x, y = centers(75)
    image = torch.from_numpy(np.exp(-10 * ((x - 0.2) ** 2 + (y + 0.3) ** 2))).float().expand(1, 3, 75, 75)
    small = geometry.warp(image, torch.eye(3)[None], 19)[0, 0].double().numpy()
    x, y = centers(19)
    assert abs((small * x).sum() / small.sum() - 0.2) < 0.01
    assert abs((small * y).sum() / small.sum() + 0.3) < 0.01


def test_every_image_is_warped_by_its_own_matrix_and_level():
    images = torch.rand(4, 3, SIDE, SIDE)
    matrices = torch.cat(
        [geometry.scale_matrix(torch.tensor([0.3, 1.3, 0.6])), geometry.rotation_matrix(torch.tensor([70.0]))]
    )
    together = geometry.warp(images, matrices, SIDE)
    for row in range(4):
        assert torch.allclose(
            together[row], geometry.warp(images[row : row + 1], matrices[row : row + 1], SIDE)[0]
        )


def test_bytes_come_out_between_zero_and_one():
    image = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8)
    view = geometry.warp(image, torch.eye(3).expand(2, 3, 3), 16)
    assert view.dtype == torch.float32
    assert torch.allclose(view, image / 255, atol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 3, 64, 75, 97])
def test_the_side_after_halvings_is_that_of_the_halved_image(size):
    image, sides = torch.rand(1, 3, size, size), []
    for _ in range(3):
        sides.append(image.shape[-1])
        image = geometry.halve(image)
    assert geometry.side_at(size, torch.arange(3)).tolist() == sides


def test_pixel_matrices_map_whole_numbers_at_pixel_centers():
    # Halving: output pixel 0 lies between input pixels 0 and 1, output pixel 31 between 62 and 63.
    halving = geometry.pixel_matrices(torch.eye(3)[None], torch.tensor([64]), 32)[0]
    assert torch.allclose(halving, torch.tensor([[2, 0, 0.5], [0, 2, 0.5]], dtype=torch.float64))
    # A quarter turn of 5 pixels: the output's top left corner shows the input's top right corner, and the right
    # edge of the output the bottom of the input.
    turn = geometry.rotation_matrix(torch.tensor([90.0], dtype=torch.float64))
    pixels = geometry.pixel_matrices(turn, torch.tensor([5]), 5)[0]
    corners = torch.tensor([[0, 0, 1], [4, 0, 1], [0, 4, 1]], dtype=torch.float64).T
    expected = torch.tensor([[4, 0], [4, 4], [0, 0]], dtype=torch.float64).T
    assert torch.allclose(pixels @ corners, expected, atol=1e-12)


def test_margins_are_the_pixels_that_bilinear_sampling_reads_beyond_each_edge():
    # Down by 2.5 and right by 1 of 8 pixels: rows from -2.5 need rows -3 and -2, columns from -1 need column -1.
    # To the other side rows end at 4.5 and 5, inside.
    shifts = [
        geometry.shift_matrix(torch.tensor(shift, dtype=torch.float64))
        for shift in ([2.5 / 8, 1 / 8], [-2.5 / 8, -1 / 8], [0.0, 0.0])
    ]
    sides = torch.full((3,), 8)
    pixels = geometry.pixel_matrices(torch.stack(shifts), sides, 8)
    reach = geometry.margins(pixels, sides, 8)
    assert reach[0].tolist() == [3, 0, 1, 0]
    # The last index, 9.5, needs rows 9 and 10; exactly 8 reads 9 too, with weight 0.
    assert reach[1].tolist() == [0, 3, 0, 2]
