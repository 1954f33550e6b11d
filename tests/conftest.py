"""Fixtures that several rooms share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def real_slides() -> Path:
    """The folder of real slides beside the checkout (see its SOURCE.md); in CI its absence is a failure."""
    folder = ROOT.parent / "shared" / "real"
    if not folder.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"{folder} is missing, and CI must test on real slides")
        pytest.skip("no real slides beside the checkout")
    return folder


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT
