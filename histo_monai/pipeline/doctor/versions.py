"""Python, packages, DVC: what is installed against what is asked for."""

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
"""Either reads slides; what is missing of these is reported where slides are read."""


def packages(_params: Params | None) -> Iterator[Finding]:
    """Every package that computes: installed, in the version of constraints.txt."""
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
            f"{', '.join(other)}: other versions may give other last digits",
            "`make .venv/ready` installs those of constraints.txt",
        )
    message = ", ".join(f"{name} {version}" for name, version in versions.items() if version is not None)
    yield Finding("PASS", "packages", message)


def dvc(_params: Params | None) -> Iterator[Finding]:
    """Stages run without DVC; only it runs them in order and knows what is up to date."""
    if importlib.util.find_spec("dvc") is None:
        yield Finding(
            "WARN",
            "dvc",
            "is not installed: stages run one by one only, and nothing is versioned",
            "`pip install dvc`, or `make .venv/ready`",
        )
        return
    version = importlib.metadata.version("dvc")
    if not Path(".dvc").is_dir():
        yield Finding(
            "WARN", "dvc", f"{version}, but this folder is no DVC project", "run from the project's root"
        )
        return
    yield Finding("PASS", "dvc", version)


def _constraints() -> dict[str, str]:
    """Name -> version, as constraints.txt pins it; nothing where there is none."""
    if not CONSTRAINTS.is_file():
        return {}
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    pins = (re.match(r"([A-Za-z0-9_.-]+)==([^\s;]+)", line) for line in lines)
    pinned = {pin[1].lower().replace("_", "-"): pin[2] for pin in pins if pin}
    cucim = next((pinned[name] for name in pinned if name.startswith("cucim")), None)
    return pinned | ({"cucim": cucim} if cucim else {})
