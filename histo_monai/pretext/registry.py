"""Methods by name. A new one is a folder with its code in it, and one line here: no other code imports a method."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, MutableMapping

from histo_monai.pretext.protocol import Pretext

Build = Callable[..., Pretext]
"""A class of a method. Its keyword arguments are the method's section in `pretrain`, flattened."""


class Registry(MutableMapping[str, Build]):
    """Name -> class. Where "module:class" stands instead, the module is imported when the name is first looked up.

    So what imports the registry imports no method, and does not depend on it: a stage depends on the methods that it
    runs (dvc.yaml: `histo_monai/pretext/${item.method}`). `PRETEXTS["name"] = Class` adds one from anywhere.

    Args:
        entries: name -> class, or "module:class".
    """

    def __init__(self, entries: dict[str, Build | str]) -> None:
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> Build:
        entry = self._entries[name]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = self._entries[name] = getattr(importlib.import_module(module), attribute)
        return entry

    def __setitem__(self, name: str, entry: Build | str) -> None:
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


PRETEXTS = Registry(
    {
        "random": "histo_monai.pretext.random.method:Random",
        "vae": "histo_monai.pretext.vae.method:VAE",
        "moco": "histo_monai.pretext.moco.method:MoCo",
        "rsp": "histo_monai.pretext.rsp.method:RSP",
    }
)
"""Name in `methods` of params.yaml -> class."""
