"""The same tissue once more, and other tissue of the same shape."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
import tifffile
from numpy.typing import NDArray

from histo_monai.data.leakage.fingerprints import MAX_DISTANCE, class_words, distances, fingerprint
from histo_monai.data.leakage.near_copies import NEAR_COLUMNS
from histo_monai.data.leakage.second_look import MIN_CORRELATION, fine_correlation, of_same_tissue
from histo_monai.data.leakage.views import tissue_of
from histo_monai.slides import open_slide

Image = NDArray[np.uint8]


def _node(seed: int, side: int = 512) -> Image:
    """Tissue of the same shape and shade for every seed; what is in it is random and finer."""
    rng = np.random.default_rng(seed)
    shade = cv2.resize(
        np.random.default_rng(99).normal(size=(10, 10)), (side, side), interpolation=cv2.INTER_CUBIC
    )
    image = np.full((side, side, 3), 245, np.uint8)
    y, x = np.mgrid[:side, :side] - side / 2
    inside = np.hypot(y, 1.2 * x + 0.2 * y) < 0.42 * side
    grain = cv2.GaussianBlur(rng.normal(size=(side, side)), (0, 0), 3)
    purple = np.array([150, 80, 160]) + (25 * shade + 25 * grain / grain.std())[..., None]
    image[inside] = np.clip(purple[inside], 0, 255)
    return image


def _encoded(image: Image, quality: int) -> Image:
    return cv2.imdecode(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1], cv2.IMREAD_COLOR)


def _resized(image: Image, factor: float) -> Image:
    return cv2.resize(image, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)


COPIES: dict[str, Callable[[Image], Image]] = {
    "encoded": lambda image: _encoded(image, 30),
    "half": lambda image: _resized(image, 0.5),
    "larger": lambda image: _resized(image, 1.5),
    "turned": lambda image: np.ascontiguousarray(np.rot90(image)),
    "mirrored, smaller, encoded": lambda image: _encoded(_resized(image[:, ::-1], 0.6), 60),
    "darker": lambda image: (image * 0.85).astype(np.uint8),
    "another piece of glass": lambda image: np.pad(
        image[40:], ((0, 90), (60, 0), (0, 0)), constant_values=245
    ),
    "turned by 4 degrees": lambda image: cv2.warpAffine(
        image, cv2.getRotationMatrix2D((256, 256), 4, 1), image.shape[1::-1], borderValue=(245, 245, 245)
    ),
}


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_agrees_in_what_is_fine(how: str) -> None:
    assert fine_correlation(_node(0), COPIES[how](_node(0))) >= MIN_CORRELATION


def test_other_tissue_of_the_same_shape_does_not() -> None:
    """Whose fingerprints would call it a copy."""
    nodes = [_node(seed) for seed in range(4)]
    for one, other in combinations(nodes, 2):
        words = [class_words([fingerprint(tissue_of(node))]) for node in (one, other)]
        assert distances(words[0][0], words[1])[0, 0] <= MAX_DISTANCE
        assert fine_correlation(one, other) < 0.3


def test_what_has_no_structure_has_none_in_common() -> None:
    assert fine_correlation(np.full((64, 64, 3), 240, np.uint8), np.full((80, 64, 3), 200, np.uint8)) == 0


@pytest.mark.parametrize("processes", [1, 2])
def test_pairs_of_files_that_are_no_copies_are_left_out(tmp_path: Path, processes: int) -> None:
    images = {"a": _node(0), "b": _node(1), "copy": COPIES["mirrored, smaller, encoded"](_node(0))}
    for name, image in images.items():
        tifffile.imwrite(tmp_path / f"{name}.tif", image, photometric="rgb", tile=(128, 128))
    slides = pd.DataFrame(
        {"name": list(images), "split": ["test", "train", "train"]}
        | {"path": [str(tmp_path / f"{name}.tif") for name in images], "mpp": 4.0}
    )
    pairs = [["slide", name, "train", "a", "test", 20] for name in ("b", "copy")]
    near = pd.DataFrame(pairs, columns=list(NEAR_COLUMNS))
    assert of_same_tissue(near, slides, processes)["first"].tolist() == ["copy"]
    assert of_same_tissue(near[:0], slides, processes).empty


def test_real_slides_are_their_own_copies_alone(real_slides: Path) -> None:
    thumbnails = []
    for name in ("duodenum-adenoma.tif", "stomach-metaplasia.tif"):
        with open_slide(real_slides / name) as slide:
            thumbnails.append(slide.thumbnail(slide.thumbnail_mpp(512)))
    one, other = thumbnails
    assert fine_correlation(one, other) < 0.3
    for how in ("mirrored, smaller, encoded", "darker", "encoded"):
        assert fine_correlation(one, COPIES[how](one)) >= MIN_CORRELATION
