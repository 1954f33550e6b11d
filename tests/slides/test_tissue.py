from __future__ import annotations

import cv2
import numpy as np
import pytest

from histo_monai.slides import open_slide, tissue_mask

PINK, PALE, PURPLE = (225, 130, 175), (236, 205, 222), (110, 70, 150)


def glass(color=(243, 242, 244), noise=2.0, shape=(200, 300)):
    rng = np.random.default_rng(0)
    picture = np.array(color) + rng.normal(0, noise, (*shape, 3))
    return picture.clip(0, 255).astype(np.uint8)


def with_tissue(picture, color=PINK, center=(100, 150), radius=50):
    rng = np.random.default_rng(1)
    inside = np.zeros(picture.shape[:2], np.uint8)
    cv2.circle(inside, center[::-1], radius, 1, -1)
    inside = inside.astype(bool)
    stained = np.array(color) + rng.normal(0, 8, picture.shape)
    picture = picture.copy()
    picture[inside] = stained.clip(0, 255).astype(np.uint8)[inside]
    return picture, inside


def overlap(mask, truth):
    return (mask & truth).sum() / max(1, (mask | truth).sum())


@pytest.mark.parametrize("color", [PINK, PALE, PURPLE])
@pytest.mark.parametrize("background", [(255, 255, 255), (243, 242, 244), (240, 236, 222), (226, 232, 240)])
def test_the_mask_follows_stained_tissue_on_white_and_on_tinted_glass(color, background):
    picture, inside = with_tissue(glass(background), color)
    assert overlap(tissue_mask(picture), inside) > 0.9


@pytest.mark.parametrize(
    "background", [(255, 255, 255), (243, 242, 244), (240, 236, 222), (60, 60, 60), (0, 0, 0)]
)
@pytest.mark.parametrize("noise", [0, 3])
def test_a_blank_slide_has_no_tissue(background, noise):
    assert tissue_mask(glass(background, noise)).sum() == 0


def test_a_field_full_of_tissue_is_tissue_with_its_pale_parts():
    picture = glass(PURPLE, 10)
    picture[:, 200:] = glass(PALE, 3)[:, 200:]
    assert tissue_mask(picture).mean() > 0.97


def test_areas_stitched_in_white_change_nothing_elsewhere():
    picture, inside = with_tissue(glass((236, 230, 234)))
    wide = np.full((600, 900, 3), 255, np.uint8)
    wide[:200, :300] = picture
    mask = tissue_mask(wide)
    assert not mask[200:].any()
    assert not mask[:, 300:].any()
    assert overlap(mask[:200, :300], inside) > 0.9


def test_black_borders_and_marker_are_not_tissue():
    picture, inside = with_tissue(glass())
    picture[:12], picture[:, -12:] = 3, (8, 2, 6)
    cv2.line(picture, (10, 180), (120, 190), (30, 60, 190), 6)  # blue
    cv2.line(picture, (180, 190), (280, 180), (20, 140, 60), 6)  # green
    cv2.line(picture, (20, 20), (20, 120), (15, 15, 18), 6)  # black
    mask = tissue_mask(picture)
    assert overlap(mask, inside) > 0.85
    assert not mask[:11].any()
    assert mask[:, -11:].sum() == 0


def test_specks_are_dropped_and_pinholes_filled():
    picture, inside = with_tissue(glass())
    picture[20, 20] = PURPLE
    picture[100, 150] = (243, 242, 244)
    mask = tissue_mask(picture)
    assert not mask[15:26, 15:26].any()
    assert mask[95:106, 145:156].all()
    assert overlap(mask, inside) > 0.95


def test_what_is_no_rgb_picture_is_refused():
    for wrong in (np.zeros((4, 4), np.uint8), np.zeros((4, 4, 4), np.uint8), np.zeros((4, 4, 3))):
        with pytest.raises(ValueError, match="RGB picture"):
            tissue_mask(wrong)


@pytest.mark.parametrize(
    ("name", "mpp", "tissue", "glass_boxes", "tissue_boxes"),
    [
        # Looked at as pictures: part of tissue; squares (y, x, side), µm, that show glass alone or tissue alone.
        ("stomach-metaplasia.tif", None, (0.5, 0.7), [(50, 50, 300)], [(1500, 500, 400)]),
        ("duodenum-adenoma.tif", None, (0.7, 0.9), [(50, 50, 200)], [(1000, 800, 300)]),
        ("oesophagus-eosinophilic.tif", None, (0.45, 0.65), [(50, 800, 300)], [(650, 900, 300)]),
        ("lymph-node.tif", 0.25, (0.5, 0.75), [], [(200, 600, 300)]),
        ("breast-lobular.tif", None, (0.75, 0.97), [], [(500, 500, 400)]),
        ("cmu-1-small-region.svs", None, (0.25, 0.5), [(50, 50, 150)], []),
        ("tcga-cr-7395-01a-01-ts1.svs", 1.0, (0.5, 0.75), [(50, 100, 400)], [(1500, 500, 300)]),
        ("asap-example.tif", None, (0.1, 0.3), [(400, 1000, 200)], [(400, 220, 60)]),
    ],
)
def test_masks_of_real_slides_stay_as_they_were_looked_at(
    real_slides, name, mpp, tissue, glass_boxes, tissue_boxes
):
    with open_slide(real_slides / name, mpp=mpp) as slide:
        mask = tissue_mask(slide.thumbnail(8.0))
    assert tissue[0] < mask.mean() < tissue[1]

    def part(box):
        y, x, side = (round(value / 8) for value in box)
        return mask[y : y + side, x : x + side].mean()

    assert all(part(box) < 0.02 for box in glass_boxes)
    assert all(part(box) > 0.95 for box in tissue_boxes)


def _stained(absorbed, *, seed=0, background=(243, 242, 244), least=0.1, most=0.5):
    """A picture of uneven tissue that absorbs red, green and blue in this proportion (optical density), and where."""
    rng = np.random.default_rng(seed)
    inside = np.zeros((300, 450), np.uint8)
    for y, x, radius in ((100, 120, 60), (170, 300, 80), (220, 90, 40)):
        cv2.circle(inside, (x, y), radius, 1, -1)
    inside = inside.astype(bool)
    field = cv2.GaussianBlur(rng.normal(size=inside.shape), (0, 0), 3)
    field = (field - field.min()) / np.ptp(field)
    density = (least + (most - least) * field)[..., None] * np.array(absorbed)
    picture = np.array(background) * np.where(inside[..., None], 10**-density, 1.0)
    picture += rng.normal(0, 2, picture.shape)
    return picture.clip(0, 255).astype(np.uint8), inside


STAINS = {
    "silver": (1, 1, 1),
    "silver on a tan ground": (0.8, 0.9, 1.1),
    "a blue counterstain": (1, 0.75, 0.35),
    "a violet counterstain": (0.65, 0.7, 0.29),
    "a green counterstain": (0.9, 0.4, 0.6),
    "brown": (0.27, 0.57, 0.78),
}


@pytest.mark.parametrize("background", [(255, 255, 255), (243, 242, 244), (240, 236, 222), (226, 232, 240)])
@pytest.mark.parametrize("stain", STAINS)
def test_other_stains_than_hematoxylin_and_eosin_are_tissue(stain, background):
    for seed in range(3):
        picture, inside = _stained(STAINS[stain], seed=seed, background=background)
        assert overlap(tissue_mask(picture), inside) > 0.92


def test_flat_gray_on_pure_white_is_tissue():
    picture = np.full((200, 300, 3), 255, np.uint8)
    picture[60:140, 80:220] = 150
    inside = (picture < 255).all(axis=2)
    assert overlap(tissue_mask(picture), inside) > 0.9


def test_brown_with_a_pale_blue_counterstain_is_tissue_whole():
    blue, inside = _stained(STAINS["a blue counterstain"], least=0.06, most=0.3)
    brown, _ = _stained(STAINS["brown"], least=0.3, most=0.8, seed=1)
    picture = np.where((np.arange(450) // 12 % 3 == 0)[None, :, None], brown, blue)
    assert overlap(tissue_mask(picture), inside) > 0.92


def test_marker_beside_another_stain_is_not_tissue():
    picture, inside = _stained(STAINS["silver"])
    marker = np.zeros_like(picture)
    cv2.line(marker, (10, 280), (430, 290), (30, 60, 190), 6)
    cv2.line(marker, (200, 10), (420, 20), (20, 140, 60), 6)
    cv2.line(marker, (10, 20), (150, 10), (15, 15, 18), 6)
    picture = np.where(marker.any(axis=2)[..., None], marker, picture)
    mask = tissue_mask(picture)
    assert overlap(mask, inside) > 0.9
    assert mask[marker.any(axis=2)].mean() < 0.02


@pytest.mark.parametrize("color", [(30, 60, 190), (20, 140, 60), (15, 15, 18)])
def test_marker_on_a_blank_slide_is_not_tissue(color):
    picture = glass()
    cv2.line(picture, (20, 30), (280, 170), color, 8)
    assert tissue_mask(picture).mean() < 0.01


def test_a_gray_border_does_not_hide_that_a_slide_is_of_hematoxylin_and_eosin():
    picture, inside = with_tissue(glass(), radius=25)
    picture[:, :60] = (60, 60, 60)
    mask = tissue_mask(picture)
    assert overlap(mask, inside) > 0.9
    assert not mask[:, :58].any()


def test_uneven_light_on_a_blank_slide_is_not_tissue():
    picture = (glass() * np.linspace(0.87, 1, 300)[None, :, None]).astype(np.uint8)
    assert tissue_mask(picture).sum() == 0
