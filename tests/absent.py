"""What a test needs and this machine lacks."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def skip_outside_ci(missing: str, duty: str) -> NoReturn:
    """Skip a test; in CI fail it.

    Args:
        missing: what there is not, and how to get it.
        duty: what CI must do.
    """
    if os.environ.get("CI"):
        pytest.fail(f"{missing}; CI must {duty}")
    pytest.skip(missing)
