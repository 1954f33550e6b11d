"""Stages in small."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def forests_are_small(small_forests: None) -> None:
    """Of all stages here."""
