"""Fixtures for several folders of tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.absent import skip_outside_ci

pytest_plugins = ["tests.data_fixtures", "tests.devices", "tests.folders", "tests.waves"]

KEPT = ("HISTO_MONAI_CPUS", "HISTO_MONAI_SOAK_READS")
"""How many processes, and how long: what whoever starts the tests may choose."""
ROOT = Path(__file__).resolve().parent.parent


def pytest_configure() -> None:
    """No test depends on what the shell that starts it has set; but for `KEPT`."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "HISTO_MONAI_")) and name not in KEPT:
            del os.environ[name]
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
        os.environ.pop(name, None)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where two processes run tests, one file stays on one; files that use `finished` do too, and begin first.

    Then files with slow tests, so that no process ends long after the other.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    finished = {item.path for item in items if "finished" in getattr(item, "fixturenames", ())}
    for item in items:
        group = "pipeline" if item.path in finished else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: (item.path not in finished, item.path not in slow))


@pytest.fixture(scope="session")
def real_slides() -> Path:
    """The folder of real slides beside the checkout (see its SOURCE.md); in CI its absence is a failure."""
    folder = ROOT.parent / "shared" / "real"
    if not folder.is_dir():
        skip_outside_ci(f"{folder} is missing", "test on real slides")
    return folder


@pytest.fixture(scope="module")
def small_forests() -> Iterator[None]:
    """Five trees in place of fifty choose among settings; what forests learn is tested with the baselines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("histo_monai.finetuning.learners.TREES_IN_FOLDS", 5)
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser for the tests of a file."""
    from tests.browsers import chromium  # imported late: few files use it

    with chromium() as started:
        yield started


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT
