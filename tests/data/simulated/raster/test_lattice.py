import numpy as np
import pytest

from histo_monai.data.simulated.raster.lattice import (
    Grid,
    derive,
    hash_cells,
    noise,
    periodic_texture,
    scatter,
    uniforms,
    wrap,
)


def splitmix_finalizer(value: int) -> int:
    """Steele, Lea & Flood 2014, figure 17, in Python's integers."""
    mask = 2**64 - 1
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & mask
    value = (value ^ value >> 27) * 0x94D049BB133111EB & mask
    return value ^ value >> 31


def test_cells_hash_as_by_the_finalizer_in_integers() -> None:
    rows, columns = np.array([0, -3, 17]), np.array([5, 2, -9])
    for got, row, column in zip(hash_cells(99, rows, columns), rows, columns, strict=True):
        mixed = int(row) * 0x9E3779B97F4A7C15 + int(column) * 0xC2B2AE3D27D4EB4F + 99
        assert int(got) == splitmix_finalizer(mixed % 2**64)


def test_uniforms_fill_the_unit_interval_evenly_and_do_not_repeat_each_other() -> None:
    rows, columns = np.meshgrid(np.arange(200), np.arange(200), indexing="ij")
    numbers = uniforms(3, rows, columns, 7).reshape(7, -1)
    counts = np.array([np.histogram(n, 20, (0, 1))[0] for n in numbers])
    assert abs(counts - 2000).max() < 5 * np.sqrt(2000)
    assert abs(np.corrcoef(numbers) - np.eye(7)).max() < 0.03


def test_noise_of_a_window_equals_the_same_place_of_a_larger_one() -> None:
    large = noise(Grid(-40.0, 12.0, 2.0, 120, 90), 37.0, 8)
    small = noise(Grid(0.0, 52.0, 2.0, 30, 40), 37.0, 8)
    np.testing.assert_allclose(small, large[20:50, 20:60], atol=2e-6)


def test_noise_has_zero_mean_and_unit_variance() -> None:
    field = noise(Grid(0, 0, 5.0, 600, 600), 20.0, 1)
    assert abs(field.mean()) < 0.03
    assert abs(field.std() - 1) < 0.04


@pytest.mark.parametrize("jitter", [0.0, 0.3])
def test_points_of_a_window_are_those_of_a_larger_one_inside_it(jitter: float) -> None:
    y, x, u = scatter((-100, -100, 300, 300), 9.0, jitter, 4)
    inside = (y >= 10) & (y < 90) & (x >= 20) & (x < 130)
    places = scatter((10, 20, 90, 130), 9.0, jitter, 4)
    np.testing.assert_array_equal(
        np.stack([y, x, *u])[:, inside], np.stack([places[0], places[1], *places[2]])
    )


def test_point_density_is_that_of_a_hexagonal_lattice() -> None:
    y, _, _ = scatter((0, 0, 1000, 1000), 10.0, 0.3, 4)
    assert len(y) == pytest.approx(1000 * 1000 / (10 * 10 * 0.866), rel=0.02)


def test_textures_wrap_around_without_a_seam() -> None:
    texture = periodic_texture(64, (3.0, 3.0), 5)
    across = np.diff(wrap(texture, -8, -8, 80, 80), axis=1)
    assert abs(across[:, 7]).max() < 1.2 * abs(across[:, :7]).max()
    np.testing.assert_array_equal(wrap(texture, 64, -64, 64, 64), texture)


def test_child_seeds_differ_by_purpose_and_number() -> None:
    seeds = [
        derive(1, "style"),
        derive(1, "traits"),
        derive(2, "style"),
        derive(1, "style", 0),
        derive(1, "style", 1),
    ]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= s < 2**63 for s in seeds)
