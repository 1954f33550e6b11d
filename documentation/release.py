"""What a release needs beside tests and site, in dist/: the wheel, a first run from it, its packages and licenses.

    make release-check       # lint, tests, site, then this

The wheel is built twice from the commit and must have the same bytes. It is installed into a fresh environment with the
versions of constraints.txt. There a new project runs all stages, in an empty folder. sbom.json lists every installed
package (CycloneDX).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
LICENSES = """
import importlib.metadata, json
licenses = {}
for one in importlib.metadata.distributions():
    stated = one.metadata
    kinds = [kind for kind in stated.get_all("Classifier", []) if kind.startswith("License ::")]
    first = (stated.get("License") or "").strip().partition(chr(10))[0]
    licenses[one.name] = stated.get("License-Expression") or "; ".join(filter(None, [first, *kinds]))
print(json.dumps(licenses))
"""
"""Prints the licenses that the installed packages state; run by the environment that has them."""
WITHOUT_LICENSE = {"cuda-toolkit": "NVIDIA's, as the packages that it groups"}
"""Packages that state no license, with what is known of it."""
COPYLEFT = {
    "asyncssh": "or EPL-2.0; only with the extra ssh",
    "dulwich": "or Apache-2.0",
    "grandalf": "or EPL-1.0; of DVC",
    "pygit2": "with linking exception; of DVC",
    "openslide-bin": "one of its libraries, or BSD-3-Clause",
}
"""Packages whose license names the GPL, and why they may be installed beside this package."""


def run(*call: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Output of a program; its failure ends the check."""
    print(" ".join(map(str, call)), flush=True)
    done = subprocess.run(
        call, cwd=cwd, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"release: {call[0]} ended with status {done.returncode}:\n{done.stdout}")
    return done.stdout


def version_everywhere() -> str:
    """Version of pyproject.toml, if the changelog begins with it and git has no open change."""
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    if run("git", "status", "--porcelain").strip():
        sys.exit("release: files are not committed. Fix: git commit")
    first = re.search(r"(?m)^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    if first is None or first[1] != version:
        sys.exit(f"release: CHANGELOG.md does not begin with {version}. Fix: rename the section Unreleased")
    return version


def build_twice(folder: Path) -> Path:
    """The wheel in dist/; two builds of the commit must have the same bytes."""
    when = run("git", "log", "-1", "--format=%ct").strip()
    wheels: list[Path] = []
    for name in ("first", "second"):
        source = folder / name
        run("git", "worktree", "add", "--detach", source, "HEAD")
        try:
            run(
                sys.executable,
                "-m",
                "build",
                "--outdir",
                folder / f"{name}-dist",
                cwd=source,
                SOURCE_DATE_EPOCH=when,
            )
        finally:
            run("git", "worktree", "remove", "--force", source)
        wheels += (folder / f"{name}-dist").glob("*.whl")
    digests = [hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels]
    if digests[0] != digests[1]:
        sys.exit(f"release: two builds of the wheel differ: {digests[0]}, {digests[1]}")
    DIST.mkdir(exist_ok=True)
    for built in (folder / "first-dist").iterdir():
        built.replace(DIST / built.name)
    print(f"{wheels[0].name}: sha256 {digests[0]}")
    return DIST / wheels[0].name


def first_run(wheel: Path, folder: Path) -> Path:
    """Python of a fresh environment in which a new project has run all stages."""
    run(sys.executable, "-m", "venv", folder / "env")
    python = folder / "env/bin/python"
    run(python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel)
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    project = folder / "project"
    run("histo-monai", "init", project, PATH=path, cwd=folder)
    run("dvc", "repro", PATH=path, cwd=project)
    run("histo-monai", "verify", "data/", PATH=path, cwd=project)
    return python


def problems_of(licenses: Mapping[str, str]) -> list[str]:
    """Packages without a license, or with one that needs a reason here.

    Args:
        licenses: as the packages state them, by name.
    """
    problems = []
    for name, license_ in sorted(licenses.items()):
        if not license_ and name not in WITHOUT_LICENSE:
            problems.append(f"{name}: states no license")
        if re.search(r"(?<!L)GPL|(?<!Lesser )General Public", license_) and name not in COPYLEFT:
            problems.append(f"{name}: {license_}")
    return problems


def write_sbom(python: Path) -> None:
    """dist/sbom.json: packages of the fresh environment, whose licenses are looked at."""
    path = DIST / "sbom.json"
    run(
        sys.executable,
        "-m",
        "cyclonedx_py",
        "environment",
        "--pyproject",
        "pyproject.toml",
        "-o",
        path,
        python,
    )
    licenses = json.loads(run(python, "-c", LICENSES))
    problems = problems_of(licenses)
    if problems:
        fix = "Fix: replace the package, or state the reason in documentation/release.py"
        sys.exit("release: " + "\n".join([*problems, fix]))
    print(f"{path}: {len(licenses)} packages")


def main() -> None:
    """All of it, in the order in which it fails fastest."""
    version = version_everywhere()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_sbom(first_run(build_twice(folder), folder))
    print(f"release {version}: ready. Next: git tag v{version}")


if __name__ == "__main__":
    main()
