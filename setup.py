"""What pyproject.toml cannot say: what a wheel carries that does not lie in the package.

The report's libraries of the browser, which are fetched when it is built; and pipeline, params and docs, which
`histo-monai init` makes a project from.
"""

from __future__ import annotations

import runpy
import shutil
import sys
from pathlib import Path
from typing import ClassVar

from setuptools import Command, setup
from setuptools.command.build import build

SITE = Path("histo_monai", "reports", "site")
PROJECT = Path("histo_monai", "pipeline", "project")


class _Step(Command):
    """Of a build; setuptools sets `editable_mode` where a working copy is installed in place."""

    def initialize_options(self) -> None:
        """Of setuptools' protocol."""
        self.editable_mode = False
        self.build_lib: str | None = None

    def finalize_options(self) -> None:
        """The same."""
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))


class BuildVendor(_Step):
    """Fetch them into the package: into a wheel they must; a working copy can do without, and the report says so."""

    def run(self) -> None:
        """Fetch."""
        fetch = runpy.run_path(str(SITE / "vendor.py"))["fetch"]
        try:
            fetch(Path.cwd() / SITE / "vendored")
        except OSError as error:
            if not self.editable_mode:
                raise
            print(f"the report will lack its charts and its viewer of slides: {error}", file=sys.stderr)


class BuildProject(_Step):
    """Copy into a wheel what a working copy has at its root."""

    def run(self) -> None:
        """Copy."""
        if self.editable_mode:
            return
        names = runpy.run_path(str(PROJECT / "files.py"))["FILES"]
        for name in names:
            target = Path(str(self.build_lib)) / PROJECT / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if Path(name).is_dir():
                shutil.copytree(name, target, dirs_exist_ok=True)
            else:
                shutil.copyfile(name, target)


class Build(build):
    """With two steps more: one before modules are copied, one after."""

    sub_commands: ClassVar = [("build_vendor", None), *build.sub_commands, ("build_project", None)]


setup(cmdclass={"build": Build, "build_vendor": BuildVendor, "build_project": BuildProject})
