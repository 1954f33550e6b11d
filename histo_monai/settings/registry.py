"""Parts by name: a method, a dataset or an encoder is one file and one line in a registry."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, MutableMapping
from typing import Any


def loaded(part: Any) -> Any:
    """The part that "module:name" names; any other is given back as it is."""
    if not isinstance(part, str):
        return part
    module, _, attribute = part.partition(":")
    return getattr(importlib.import_module(module), attribute)


class Registry(MutableMapping[str, Any]):
    """Name -> part, in the order of registration. A part given as "module:name" is imported when it is asked for.

    So that reading `params.yaml`, which names parts, imports none that it does not use:

        METHODS = Registry(paper="histo_monai.semisupervised.paper:Paper")
        METHODS["mine"] = Mine  # from anywhere, before the stage runs

    Args:
        parts: by name.
    """

    def __init__(self, **parts: Any) -> None:
        self._parts = dict(parts)

    def __getitem__(self, name: str) -> Any:
        part = self._parts[name] = loaded(self._parts[name])
        return part

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
