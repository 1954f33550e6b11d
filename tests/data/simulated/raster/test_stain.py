import numpy as np

from histo_monai.data.simulated.raster.stain import Scanner, StainStyle, random_style

VECTORS = np.array([[1.0, 1.1, 0.4], [0.1, 1.0, 0.5]], np.float32)
PLAIN = StainStyle(VECTORS, (1.2, 0.7), (240.0, 238.0, 242.0), 1.0, 0.0, 0.0, 0.0, 90)


def test_light_follows_beer_and_lambert() -> None:
    rng = np.random.default_rng(0)
    hematoxylin, eosin = rng.random((2, 20, 30)).astype(np.float32)
    image = Scanner(PLAIN, 0.5, 0).expose(hematoxylin, eosin, 0, 0)
    density = 1.2 * hematoxylin[..., None] * VECTORS[0] + 0.7 * eosin[..., None] * VECTORS[1]
    assert abs(image - np.array(PLAIN.white) * np.exp(-density)).max() <= 0.5001


def test_sensor_noise_belongs_to_the_place_on_the_slide() -> None:
    scanner = Scanner(random_style(np.random.default_rng(3)), 0.5, 7)
    blank = np.zeros((80, 80), np.float32)
    whole = scanner.expose(blank, blank, 0, 0)
    part = scanner.expose(blank[:40, :40], blank[:40, :40], 30, 20)
    np.testing.assert_array_equal(part, whole[30:70, 20:60])
    assert 0 < whole.std() < 5


def test_laboratories_differ_in_color_and_concentration() -> None:
    styles = [random_style(np.random.default_rng(i)) for i in range(60)]
    stained = [
        Scanner(s, 0.5, 0)
        .expose(np.full((8, 8), 0.5, np.float32), np.full((8, 8), 0.5, np.float32), 0, 0)
        .mean((0, 1))
        for s in styles
    ]
    spread = np.std(stained, axis=0)
    assert (spread > 10).all()
    assert all(np.median(a) > np.median(b) for a, b in [(np.array(stained)[:, 0], np.array(stained)[:, 1])])
