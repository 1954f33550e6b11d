"""Methods of a project: one file each in `own_methods/`, loaded by name like the package's methods."""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from histo_monai.utils.errors import InputError

OWN_METHODS = "own_methods"
"""Folder of a project, beside params.yaml."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class OwnMethods:
    """Methods of one kind in a project.

    Attributes:
        package: Package of that kind of methods; its last name is the folder below `own_methods/`.
        settings: Class of `<package>.settings` that each method's settings inherit.
    """

    package: str
    settings: str

    @property
    def folder(self) -> Path:
        """Folder of the files, relative to the project."""
        return Path(OWN_METHODS, self.package.rpartition(".")[2])

    def path(self, name: str) -> Path:
        """File of a method."""
        return self.folder / f"{name}.py"

    def module(self, name: str) -> str:
        """Dotted name of a method's file."""
        return ".".join((*self.folder.parts, name))

    def names(self) -> list[str]:
        """Names of the files, sorted.

        Raises:
            InputError: a name is no name of a method.
        """
        names = sorted(path.stem for path in self.folder.glob("*.py"))
        for name in names:
            if not _NAME.fullmatch(name):
                raise InputError(
                    f"{self.path(name)}: not the name of a method. Fix: rename the file; use a-z, 0-9 and _, a letter "
                    "first"
                )
        return names

    def load(self, name: str) -> Any:
        """The one class with `Settings` in a method's file; this runs the file.

        Raises:
            InputError: the file is a link to elsewhere or holds no such class, or another file has its module name.
        """
        path = self.path(name)
        if path.resolve().parent != self.folder.resolve():
            raise InputError(
                f"{path}: a link to a file outside of {self.folder}. Fix: put the file itself there"
            )
        if (project := str(Path.cwd())) not in sys.path:
            sys.path.append(project)
        module = importlib.import_module(self.module(name))
        if Path(str(module.__file__)).resolve() != path.resolve():
            raise InputError(
                f"{path}: Python finds {module.__file__} in its place. Fix: uninstall the package {OWN_METHODS}"
            )
        found = [
            value
            for value in vars(module).values()
            if isinstance(value, type) and value.__module__ == module.__name__ and hasattr(value, "Settings")
        ]
        if len(found) != 1:
            names = ", ".join(value.__name__ for value in found) or "none"
            raise InputError(
                f"{path}: expected one class with `Settings`, found {names}. Fix: write one method per file"
            )
        self._check_settings(path, found[0])
        return found[0]

    def _check_settings(self, path: Path, method: Any) -> None:
        base = getattr(importlib.import_module(f"{self.package}.settings"), self.settings)
        given = method.Settings
        if not (isinstance(given, type) and issubclass(given, base) and dataclasses.is_dataclass(given)):
            raise InputError(
                f"{path}: {method.__name__}.Settings is no {self.settings}. Fix: make it a frozen dataclass that "
                f"inherits {self.package}.settings.{self.settings}"
            )
