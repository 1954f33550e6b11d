"""Registries of plug-ins: a method, dataset or encoder is one file and one line in a registry."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

from histo_monai.utils.errors import InputError
from histo_monai.utils.settings.own_methods import OwnMethods


def loaded(part: Any) -> Any:
    """The object that "module:name" names; other objects unchanged."""
    if not isinstance(part, str):
        return part
    module, _, attribute = part.partition(":")
    return getattr(importlib.import_module(module), attribute)


class Part(NamedTuple):
    """Location of a plug-in, imported on request.

    Attributes:
        source: "module:name" of the plug-in.
        settings: "module:name" of its `Settings`, in a file with few imports, so that reading params is fast.
    """

    source: str
    settings: str


class Registry(MutableMapping[str, Any]):
    """Name -> plug-in, in the order of registration; "module:name" is imported on request.

    So reading `params.yaml` imports no unused plug-in:

        METHODS = Registry.of_package("histo_monai.semisupervised", "MethodSettings", paper="Paper")
        METHODS["mine"] = Mine  # from anywhere, before the stage runs

    Args:
        parts: By name: the plug-in, "module:name", or a `Part`.
    """

    def __init__(self, **parts: Any) -> None:
        self._parts = dict(parts)
        self._own: OwnMethods | None = None

    @classmethod
    def of_package(cls, package: str, settings: str, /, **classes: str) -> Registry:
        """Registry of a package's methods, one file each, and of the project's `own_methods/`.

        Args:
            package: Method `name` is class `C` of `package.name`; its settings are class `CSettings` of
                `package.settings`. "folder.C" is class `C` of `package.folder.name`.
            settings: Base class of all settings, in `package.settings`.
            classes: `name="C"` of each method of the package.
        """
        methods = cls(
            **{
                name: Part(
                    ".".join((package, *folders, f"{name}:{method}")), f"{package}.settings:{method}Settings"
                )
                for name, path in classes.items()
                for *folders, method in [path.split(".")]
            }
        )
        methods._own = OwnMethods(package, settings)
        return methods

    def own_files(self, name: str) -> list[Path]:
        """The file of a project's own method; empty for a method of the package."""
        return [] if self._own is None or name in self._parts else [self._own.path(name)]

    def module(self, name: str) -> str:
        """Dotted name of a plug-in's module, without importing it."""
        if self._own is not None and name in self._own_names():
            return self._own.module(name)
        part = self._parts[name]
        source = part.source if isinstance(part, Part) else part
        return source.partition(":")[0] if isinstance(source, str) else str(source.__module__)

    def _own_names(self) -> list[str]:
        if self._own is None:
            return []
        names = self._own.names()
        for name in names:
            if name in self._parts:
                raise InputError(
                    f"{self._own.path(name)}: {name} is a method of the package. Fix: rename the file"
                )
        return names

    def __getitem__(self, name: str) -> Any:
        if self._own is not None and name in self._own_names():
            return self._own.load(name)
        part = self._parts[name]
        part = self._parts[name] = loaded(part.source if isinstance(part, Part) else part)
        return part

    def settings(self, name: str, attribute: str = "Settings") -> Any:
        """Class of a plug-in's settings; imports the plug-in only if they have no file of their own."""
        part = self._parts.get(name)
        if isinstance(part, Part) and attribute == "Settings":
            return loaded(part.settings)
        return getattr(self[name], attribute)

    def __setitem__(self, name: str, part: Any) -> None:
        self._parts[name] = part

    def __delitem__(self, name: str) -> None:
        del self._parts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._parts or name in self._own_names()  # without importing it

    def __iter__(self) -> Iterator[str]:
        return iter([*self._parts, *self._own_names()])

    def __len__(self) -> int:
        return len(self._parts) + len(self._own_names())
