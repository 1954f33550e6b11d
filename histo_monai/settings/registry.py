"""Parts by name: a method, a dataset or an encoder is one file and one line in a registry."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, MutableMapping
from typing import Any, NamedTuple


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

        METHODS = Registry.of_package("histo_monai.semisupervised", paper="Paper")
        METHODS["mine"] = Mine  # from anywhere, before the stage runs

    Args:
        parts: by name: the part itself, "module:name", or a `Part`.
    """

    def __init__(self, **parts: Any) -> None:
        self._parts = dict(parts)

    @classmethod
    def of_package(cls, package: str, **classes: str) -> Registry:
        """Part `name` is class `C` of `package.name`; its settings are class `CSettings` of `package.settings`."""
        return cls(
            **{
                name: Part(f"{package}.{name}:{part}", f"{package}.settings:{part}Settings")
                for name, part in classes.items()
            }
        )

    def module(self, name: str) -> str:
        """Dotted name of the module that holds a part, which is not imported."""
        part = self._parts[name]
        source = part.source if isinstance(part, Part) else part
        return source.partition(":")[0] if isinstance(source, str) else str(source.__module__)

    def __getitem__(self, name: str) -> Any:
        part = self._parts[name]
        part = self._parts[name] = loaded(part.source if isinstance(part, Part) else part)
        return part

    def settings(self, name: str, attribute: str = "Settings") -> Any:
        """The class of a part's settings; imports the part only where no other file holds them."""
        part = self._parts[name]
        if isinstance(part, Part) and attribute == "Settings":
            return loaded(part.settings)
        return getattr(self[name], attribute)

    def __setitem__(self, name: str, part: Any) -> None:
        self._parts[name] = part

    def __delitem__(self, name: str) -> None:
        del self._parts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._parts  # without importing it

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)
