"""What pyproject.toml cannot say: the report's libraries of the browser are fetched when the package is built."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import ClassVar

from setuptools import Command, setup
from setuptools.command.build import build

SITE = Path("histo_monai", "reports", "site")


class BuildVendor(Command):
    """Fetch them into the package: into a wheel they must; a working copy can do without, and the report says so."""

    def initialize_options(self) -> None:
        """Of setuptools' protocol, which sets `editable_mode`."""
        self.editable_mode = False

    def finalize_options(self) -> None:
        """The same."""

    def run(self) -> None:
        """Fetch."""
        fetch = runpy.run_path(str(SITE / "vendor.py"))["fetch"]
        try:
            fetch(Path.cwd() / SITE / "vendored")
        except OSError as error:
            if not self.editable_mode:
                raise
            print(f"the report will lack its charts and its viewer of slides: {error}", file=sys.stderr)


class Build(build):
    """With one step more."""

    sub_commands: ClassVar = [("build_vendor", None), *build.sub_commands]


setup(cmdclass={"build": Build, "build_vendor": BuildVendor})
