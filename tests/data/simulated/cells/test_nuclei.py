import numpy as np
import pytest

from histo_monai.data.simulated.cells.nuclei import KINDS, NucleusKind, NucleusLibrary, draw_nucleus, stamp

ROUND = NucleusKind(8.0, 8.0, 0.0, 0.0, 0.8, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("mpp", [0.25, 0.5, 1.0])
def test_a_round_nucleus_covers_the_area_of_its_circle(mpp: float) -> None:
    cover = np.mean([draw_nucleus(ROUND, mpp, seed, None)[..., 1].sum() for seed in range(20)]) * mpp**2
    assert cover == pytest.approx(np.pi * 4**2, rel=0.04)


def test_an_elongated_nucleus_points_in_the_given_direction() -> None:
    library = NucleusLibrary({"fibroblast": KINDS["fibroblast"]}, 0.25, 1)
    for angle in (0.0, 0.6, 1.4, 2.3):
        sprites = library.choose("fibroblast", np.linspace(0, 0.99, 12), np.full(12, angle))
        for sprite in sprites:
            weight = sprite[..., 1]
            y, x = (np.indices(weight.shape).T - np.array(weight.shape[::-1]) // 2).T
            moments = np.array([[(weight * a * b).sum() for a in (x, y)] for b in (x, y)])
            main = np.linalg.eigh(moments)[1][:, -1]
            assert abs(main @ [np.cos(angle), np.sin(angle)]) > np.cos(0.45)


def test_stamps_are_the_maximum_of_all_sprites_also_across_the_border() -> None:
    rng = np.random.default_rng(0)
    sprites = [rng.random((5, 5, 2)).astype(np.float32), rng.random((9, 9, 2)).astype(np.float32)] * 15
    y, x = rng.uniform(-6, 26, (2, 30))
    target = np.zeros((20, 20, 2), np.float32)
    stamp(target, sprites, y, x)
    expected = np.zeros((60, 60, 2), np.float32)
    for sprite, row, column in zip(sprites, np.floor(y).astype(int), np.floor(x).astype(int), strict=True):
        half = len(sprite) // 2
        for i in range(len(sprite)):
            for j in range(len(sprite)):
                at = row - half + i + 20, column - half + j + 20
                expected[at] = np.maximum(expected[at], sprite[i, j])
    np.testing.assert_array_equal(target, expected[20:40, 20:40])


def test_median_sizes_are_those_of_the_cell_types() -> None:
    """Lymphocytes 6-8 µm, carcinoma clearly larger, all within what textbooks give."""
    library = NucleusLibrary(KINDS, 0.5, 3)
    diameters = {
        name: np.median(
            [
                2 * np.sqrt(s[..., 1].sum() * 0.25 / np.pi)
                for s in library.choose(name, np.arange(0.0125, 1, 0.025))
            ]
        )
        for name in ("lymphocyte", "tumour")
    }
    assert 6 <= diameters["lymphocyte"] <= 7.5
    assert 9 <= diameters["tumour"] <= 12
    assert diameters["tumour"] > 1.35 * diameters["lymphocyte"]
