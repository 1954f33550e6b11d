"""Checks of `doctor`: installed against required versions of packages and DVC."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

from histo_monai.pipeline.doctor.finding import Finding
from histo_monai.pipeline.params import Params
from histo_monai.pipeline.provenance import package_versions

CONSTRAINTS = Path("constraints.txt")
OPTIONAL = ("cucim", "openslide-python")
"""Libraries that read slides; `doctor.reading` reports them."""


def packages(_params: Params | None) -> Iterator[Finding]:
    """Check that every computing package is installed in the version of constraints.txt."""
    versions = package_versions()
    missing = [name for name, version in versions.items() if version is None and name not in OPTIONAL]
    if missing:
        yield Finding("FAIL", "packages", f"not installed: {', '.join(missing)}", "`make .venv/ready`")
    wanted = _constraints()
    other = [
        f"{name} {version} (constraints.txt: {wanted[name]})"
        for name, version in versions.items()
        if version is not None and wanted.get(name, version) != version
    ]
    if other:
        yield Finding(
            "WARN",
            "packages",
            f"{', '.join(other)}: results may differ in the last digits",
            "`make .venv/ready` installs the versions of constraints.txt",
        )
    message = ", ".join(f"{name} {version}" for name, version in versions.items() if version is not None)
    yield Finding("PASS", "packages", message)


def dvc(_params: Params | None) -> Iterator[Finding]:
    """Check of DVC and its project; stages run without DVC, but not in order."""
    if importlib.util.find_spec("dvc") is None:
        yield Finding(
            "WARN",
            "dvc",
            "not installed: stages run one by one, without versions",
            "`pip install dvc`, or `make .venv/ready`",
        )
        return
    version = importlib.metadata.version("dvc")
    if not Path(".dvc").is_dir():
        yield Finding(
            "WARN", "dvc", f"{version}, but this folder is not a DVC project", "run from the project's root"
        )
        return
    yield Finding("PASS", "dvc", version)


def _constraints() -> dict[str, str]:
    """Package -> version in constraints.txt; empty without the file."""
    if not CONSTRAINTS.is_file():
        return {}
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    pins = (re.match(r"([A-Za-z0-9_.-]+)==([^\s;]+)", line) for line in lines)
    pinned = {pin[1].lower().replace("_", "-"): pin[2] for pin in pins if pin}
    cucim = next((pinned[name] for name in pinned if name.startswith("cucim")), None)
    return pinned | ({"cucim": cucim} if cucim else {})
