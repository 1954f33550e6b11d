"""Parts by name: a method, a dataset or an encoder is one file and one line in a registry."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

from histo_monai.utils.errors import InputError
from histo_monai.utils.settings.own_methods import OwnMethods


def loaded(part: Any) -> Any:
    """The part that "module:name" names; any other is given back as it is."""
    if not isinstance(part, str):
        return part
    module, _, attribute = part.partition(":")
    return getattr(importlib.import_module(module), attribute)


class Part(NamedTuple):
    """Where a part lies; nothing of it is imported before it is asked for.

    Attributes:
        source: "module:name" of the part.
        settings: "module:name" of its `Settings`, in a file that imports little, so that params are read at once.
    """

    source: str
    settings: str


class Registry(MutableMapping[str, Any]):
    """Name -> part, in the order of registration. A part given as "module:name" is imported when it is asked for.

    So that reading `params.yaml`, which names parts, imports none that it does not use:

        METHODS = Registry.of_package("histo_monai.semisupervised", "MethodSettings", paper="Paper")
        METHODS["mine"] = Mine  # from anywhere, before the stage runs

    Args:
        parts: by name: the part itself, "module:name", or a `Part`.
    """

    def __init__(self, **parts: Any) -> None:
        self._parts = dict(parts)
        self._own: OwnMethods | None = None

    @classmethod
    def of_package(cls, package: str, settings: str, /, **classes: str) -> Registry:
        """Methods of a package, a file each, and those of the project's folder `own_methods/`.

        Args:
            package: method `name` is class `C` of `package.name`; its settings are class `CSettings` of
                `package.settings`.
            settings: class of `package.settings` that all settings inherit.
            classes: `name="C"` of each method of the package.
        """
        methods = cls(
            **{
                name: Part(f"{package}.{name}:{method}", f"{package}.settings:{method}Settings")
                for name, method in classes.items()
            }
        )
        methods._own = OwnMethods(package, settings)
        return methods

    def own_files(self, name: str) -> list[Path]:
        """The file of a method of the project; empty for a method of the package."""
        return [] if self._own is None or name in self._parts else [self._own.path(name)]

    def module(self, name: str) -> str:
        """Dotted name of the module that holds a part, which is not imported."""
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
        """The class of a part's settings; imports the part only where no other file holds them."""
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
