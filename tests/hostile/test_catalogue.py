"""The catalogue, in one fresh process; each kind is a test that names its failing cases.

Every twelfth case of each kind is tried, the same at each run, its first one always; `HOSTILE_EVERY=1` tries them
all, as `python -m tests.hostile` does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.folders import NewFolder
from tests.hostile.catalogue import KINDS, all_cases

EVERY = os.environ.get("HOSTILE_EVERY", "12")


@pytest.fixture(scope="module")
def faults_by_kind(
    root: Path, module_folder: NewFolder, request: pytest.FixtureRequest
) -> dict[str, dict[str, list[str]]]:
    """Faults of every case tried, by kind and name."""
    path = module_folder("hostile") / "found.json"
    asked = {
        item.callspec.params["kind"]
        for item in request.session.items
        if hasattr(item, "callspec") and "kind" in item.callspec.params
    }
    kinds = [argument for kind in KINDS if kind in asked for argument in ("--kind", kind)]
    command = [sys.executable, "-m", "tests.hostile", "--json", str(path), "--every", EVERY, *kinds]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert path.is_file(), done.stdout + done.stderr
    return json.loads(path.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_hostile_input_is_one_line_and_nothing_is_lost(
    kind: str, faults_by_kind: dict[str, dict[str, list[str]]]
) -> None:
    failing = {name: faults for name, faults in faults_by_kind[kind].items() if faults}
    assert not failing, "\n".join(f"{name}: {fault}" for name, faults in failing.items() for fault in faults)


def test_the_catalogue_is_large_and_no_case_stands_in_it_twice() -> None:
    cases = all_cases()
    assert len(cases) >= 300
    assert len({case.title for case in cases}) == len(cases)
