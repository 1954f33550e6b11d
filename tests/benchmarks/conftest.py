"""A small archive in the layout of GlaS, and its labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from histo_monai.finetuning import learners
from tests.benchmarks.real_data import EACH, PATIENTS, archive


@pytest.fixture
def truth() -> tuple[np.ndarray, np.ndarray]:
    """Class and score of every patch."""
    random = np.random.default_rng(1)
    return random.integers(0, 3, PATIENTS * EACH), random.random(PATIENTS * EACH).round(4)


@pytest.fixture
def real(tmp_path: Path, truth: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the archive; forests are small."""
    monkeypatch.setattr(learners, "TREES_IN_FOLDS", 3)
    return archive(tmp_path / "real", *truth)
