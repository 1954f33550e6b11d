"""Rules for pen, dark areas and blur: on drawn pictures and real slides with drawn artefacts; outlines of the user."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import tifffile

from histo_monai.slides import Slide, open_slide, tissue_mask
from histo_monai.slides.artefacts import FOCUS_MPP, blur_mask, dark_mask, pen_mask
from histo_monai.slides.tiles.usable import TissueRules, usable_tissue
from histo_monai.utils.errors import InputError

HEMATOXYLIN, EOSIN, DAB = (0.650, 0.704, 0.286), (0.072, 0.990, 0.105), (0.268, 0.570, 0.776)
"""Optical densities of red, green and blue (Ruifrok & Johnston 2001)."""
MACENKO = (0.563, 0.720, 0.406), (0.216, 0.801, 0.558)
"""Hematoxylin and eosin as Macenko et al. 2009 use them for reference; their eosin absorbs more blue."""
INKS = {"blue": (30, 60, 160), "green": (20, 120, 60), "light green": (70, 190, 90)}
BLACK, RED, GLASS = (25, 25, 30), (200, 30, 50), 245
ATLAS = ("anthracosis-he2", "congestion-spleen", "morphea")
REAL = ("stomach-metaplasia.tif", "breast-lobular.tif", *(f"atlas/{name}.tif" for name in ATLAS))
"""`congestion-spleen` is mostly blood."""


def stained(*stains: tuple[float, float, float]) -> np.ndarray:
    """Random mixtures of stains with a rim of glass, (200, 200, 3), by the law of Beer and Lambert."""
    amounts = np.random.default_rng(0).uniform(0.2, 0.8, (200, 200, len(stains)))
    amounts[:20] = amounts[-20:] = amounts[:, :20] = amounts[:, -20:] = 0
    return np.rint(GLASS * np.exp(-amounts @ np.array(stains))).astype(np.uint8)


def with_ink(
    rgb: np.ndarray, ink: tuple[int, int, int], stroke_px: int, opacity: float = 0.8
) -> tuple[np.ndarray, np.ndarray]:
    """A picture with a stroke from its upper left to its lower right, and the stroke, (h, w), bool."""
    height, width = rgb.shape[:2]
    cover = cv2.line(np.zeros((height, width), np.float32), (0, 0), (width, height), 1.0, stroke_px)
    light = 1 - opacity * cover[..., None] * (1 - np.array(ink) / 255)
    return np.rint(rgb * light).astype(np.uint8), cover > 0


def far_from(area: np.ndarray, px: int = 5) -> np.ndarray:
    return cv2.dilate(area.astype(np.uint8), np.ones((2 * px + 1, 2 * px + 1))) == 0


@pytest.mark.parametrize("ink", INKS.values(), ids=INKS)
def test_pen_is_found_and_hematoxylin_and_eosin_are_not_pen(ink: tuple[int, int, int]) -> None:
    rgb, stroke = with_ink(stained(HEMATOXYLIN, EOSIN), ink, 12)
    assert pen_mask(rgb)[stroke].mean() > 0.98
    assert not pen_mask(rgb)[far_from(stroke)].any()
    assert not pen_mask(stained(HEMATOXYLIN, EOSIN)).any()


def test_red_ink_is_found_and_blood_is_not_ink() -> None:
    rgb = stained(*MACENKO)
    assert not pen_mask(rgb).any()
    drawn, stroke = with_ink(rgb, RED, 12)
    assert pen_mask(drawn)[stroke].mean() > 0.98
    assert not pen_mask(drawn)[far_from(stroke)].any()
    blood = cv2.circle(np.zeros((200, 200), np.uint8), (100, 100), 30, 1, -1) > 0
    rgb[blood] = stained(tuple(3 * np.array(MACENKO[1])))[blood]
    assert not pen_mask(rgb).any()


def test_blue_hematoxylin_is_no_pen() -> None:
    rgb = stained((0.700, 0.690, 0.280), (0.700, 0.690, 0.280), tuple(0.3 * np.array(EOSIN)))
    assert pen_mask(rgb)[25:-25, 25:-25].mean() < 0.03
    drawn, stroke = with_ink(rgb, INKS["green"], 12)
    assert pen_mask(drawn)[stroke].mean() > 0.95


def test_black_ink_and_a_black_border_are_dark() -> None:
    rgb, stroke = with_ink(stained(HEMATOXYLIN, EOSIN), BLACK, 12)
    rgb[:, :5] = 8
    assert dark_mask(rgb)[stroke].mean() > 0.95
    assert dark_mask(rgb)[:, :5].all()
    stroke[:, :5] = True
    assert not dark_mask(rgb)[far_from(stroke)].any()


def test_another_stain_has_no_pen_and_nothing_dark() -> None:
    rgb = stained(HEMATOXYLIN, DAB, DAB)
    assert not pen_mask(rgb).any()
    assert not dark_mask(stained((0.9, 0.92, 0.95), (0.9, 0.92, 0.95))).any()  # silver


def test_blurred_tissue_is_found_beside_sharp_tissue() -> None:
    fine = np.kron(stained(HEMATOXYLIN, EOSIN), np.ones((2, 2, 1), np.uint8))
    disc = cv2.circle(np.zeros((400, 400), np.uint8), (200, 200), 60, 1, -1) > 0
    fine[disc] = cv2.GaussianBlur(fine, (0, 0), 8 / FOCUS_MPP)[disc]
    tissue = np.zeros((100, 100), bool)
    tissue[12:88, 12:88] = True
    inside = disc[::4, ::4]
    found = blur_mask(fine, tissue)
    assert found[far_from(~inside, 2)].all()
    assert found[tissue & far_from(inside, 2)].mean() < 0.01


@pytest.mark.parametrize("name", REAL)
def test_real_slides_lose_at_most_3_percent_and_drawn_ink_is_found(real_slides: Path, name: str) -> None:
    with open_slide(real_slides / name, 1.0 if "anthracosis" in name else None) as slide:
        whole = usable_tissue(slide, TissueRules(artefacts=("pen", "dark")))
        assert whole.excluded_fraction <= 0.03
        assert usable_tissue(slide, TissueRules(artefacts=("blur",))).excluded_fraction <= 0.03
        rgb = slide.thumbnail(16.0)
    tissue = tissue_mask(rgb)
    for ink in (*INKS.values(), RED, BLACK):
        drawn, stroke = with_ink(rgb, ink, 12, opacity=0.9)
        found = pen_mask(drawn) | dark_mask(drawn)
        assert found[stroke & tissue].mean() > 0.9, ink
        assert found[tissue & far_from(stroke)].mean() <= 0.03, ink


@pytest.fixture
def slide(tmp_path: Path) -> Slide:
    """16 µm/px, 200 x 200 px."""
    rgb, _ = with_ink(stained(HEMATOXYLIN, EOSIN), INKS["green"], 12)
    tifffile.imwrite(tmp_path / "slide.tif", rgb, tile=(64, 64), photometric="rgb")
    return open_slide(tmp_path / "slide.tif", mpp=16.0)


def outlined(path: Path, **squares: tuple[int, int]) -> Path:
    """GeoJSON with a square for each class: first and last pixel of both axes."""
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "Polygon", "coordinates": [[[a, a], [b, a], [b, b], [a, b], [a, a]]]},
            "properties": {"classification": {"name": name}},
        }
        for name, (a, b) in squares.items()
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


def test_without_rules_the_usable_tissue_is_the_tissue_mask(slide: Slide) -> None:
    usable = usable_tissue(slide, TissueRules())
    assert (usable.mask == tissue_mask(slide.thumbnail(16.0))).all()
    assert not usable.excluded.any()
    assert usable.excluded_fraction == 0


def test_outlined_artefacts_are_not_used_and_rules_still_hold(slide: Slide, tmp_path: Path) -> None:
    path = outlined(tmp_path / "mask.geojson", Artefact=(40, 80))
    pen = TissueRules(artefacts=("pen",))
    by_rule, by_both = usable_tissue(slide, pen), usable_tissue(slide, pen, path)
    inside = np.zeros((200, 200), bool)
    inside[40:80, 40:80] = True
    assert (by_both.mask == (by_rule.mask & ~inside)).all()
    assert by_both.excluded_fraction > by_rule.excluded_fraction > 0.05


def test_outlined_tissue_replaces_mask_and_rules(slide: Slide, tmp_path: Path) -> None:
    path = outlined(tmp_path / "mask.geojson", tissue=(10, 100), artefact=(50, 200))
    expected = np.zeros((200, 200), bool)
    expected[10:100, 10:100] = True  # glass and ink included
    expected[50:100, 50:100] = False
    assert (usable_tissue(slide, TissueRules(artefacts=("pen",)), path).mask == expected).all()


@pytest.mark.parametrize("squares", [{}, {"tumor": (0, 9)}])
def test_outlines_of_other_classes_are_an_error_of_one_line(
    slide: Slide, tmp_path: Path, squares: dict[str, tuple[int, int]]
) -> None:
    path = outlined(tmp_path / "mask.geojson", **squares)
    with pytest.raises(InputError, match=r"mask\.geojson: .*Fix: .*artefact or tissue") as error:
        usable_tissue(slide, TissueRules(), path)
    assert "\n" not in str(error.value)
