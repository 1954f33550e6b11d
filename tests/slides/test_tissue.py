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
