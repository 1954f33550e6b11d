"""Numbers that order triples, against a loop over pixels and against noise whose order is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

from histo_monai.pretraining.orders import contrast, ordered_by_one_number, sharpness

SIDE = 32


def _noise(sigma_px: float, contrast: float) -> np.ndarray:
    """Gray noise in three channels, blurred, Shape (3, SIDE, SIDE)."""
    noise = gaussian_filter(np.random.default_rng(0).normal(0, 1, (SIDE, SIDE)), sigma_px)
    gray = 0.5 + contrast * (noise - noise.mean()) / noise.std()
    return np.repeat(gray[None], 3, axis=0).astype(np.float32)


def _ordered(*triples: list[np.ndarray]) -> dict[str, list[float]]:
    answers = ordered_by_one_number(torch.tensor(np.array(triples)))
    return {name: answer.tolist() for name, answer in answers.items()}


def test_both_numbers_are_those_of_a_loop_over_pixels() -> None:
    patches = torch.rand(2, 3, 3, SIDE, SIDE)
    assert contrast(patches).shape == sharpness(patches).shape == (2, 3)
    for i, place in np.ndindex(2, 3):
        gray = patches[i, place].mean(dim=0).numpy().astype(float)
        total = 0.0
        for y in range(1, SIDE - 1):
            for x in range(1, SIDE - 1):
                around = gray[y - 1, x] + gray[y + 1, x] + gray[y, x - 1] + gray[y, x + 1]
                total += abs(around - 4 * gray[y, x])
        assert contrast(patches)[i, place].item() == pytest.approx(gray.std(), rel=1e-4)
        wanted = total / (SIDE - 2) ** 2 / gray.std()
        assert sharpness(patches)[i, place].item() == pytest.approx(wanted, rel=1e-4)


def test_sharpness_knows_where_detail_gets_finer_whatever_the_contrast() -> None:
    finest, middle, coarsest = _noise(4.0, 0.1), _noise(2.0, 0.02), _noise(1.0, 0.1)
    answers = _ordered([finest, middle, coarsest], [middle, finest, coarsest], [finest, finest, coarsest])
    assert answers == {"by_sharpness": [1.0, 0.0, 0.0], "by_contrast": [0.0, 0.0, 0.0]}


def test_contrast_falls_where_patches_are_averages_of_more() -> None:
    finest, middle, coarsest = _noise(2.0, 0.3), _noise(2.0, 0.2), _noise(2.0, 0.1)
    assert _ordered([finest, middle, coarsest])["by_contrast"] == [1.0]
    assert _ordered([finest, coarsest, middle])["by_contrast"] == [0.0]


def test_a_patch_of_one_color_has_no_sharpness() -> None:
    assert sharpness(torch.full((1, 3, 3, SIDE, SIDE), 0.5)).tolist() == [[0.0, 0.0, 0.0]]
