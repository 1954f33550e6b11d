"""Shapes of this project's JSON files: each reader states one and checks the file against it.

A shape is

- a type: `str`, `bool`, `int`, `float` (a finite number, whole or not), or `object` for anything;
- None for null;
- a tuple of shapes: the value has one of them;
- a list of one shape: all entries have it;
- a dict of keys and shapes: an object with these keys; a key that ends in `?` may be missing, other keys are allowed;
- a dict of one type or `Rule` and one shape: an object whose keys and values have them;
- a `Rule`.

A seal finds accidents only: anyone who can write a file can seal another shape.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Shape = Any
"""A shape, as the module describes."""


@dataclass(frozen=True)
class Rule:
    """A condition on a value: description and test."""

    words: str
    holds: Callable[[Any], bool]


def _is_sha256(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _is_inner_path(value: Any) -> bool:
    parts = value.split("/") if isinstance(value, str) else [""]
    return all(part not in ("", ".", "..") for part in parts) and "\0" not in value


SHA256 = Rule("a SHA-256, 64 hexadecimal digits", _is_sha256)
INNER_PATH = Rule("a path inside the folder", _is_inner_path)
POSITIVE = Rule("a positive number", lambda value: _is_number(value) and value > 0)
COUNT = Rule("a whole number, at least 0", lambda value: type(value) is int and value >= 0)
FILES = {INNER_PATH: SHA256}
"""Files that a record lists, and their digests."""

_KINDS: dict[Any, str] = {list: "a list", dict: "an object with keys"}
_WORDS: dict[Any, str] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    None: "null",
}


def misfit(value: Any, shape: Shape, where: str = "") -> str:
    """The first place where a value differs from a shape, and the expected shape; empty if the value fits.

    Args:
        value: as `json.loads` gives it.
        where: key of the value, with dots; empty for a whole file.
    """
    if isinstance(shape, tuple):
        faults = [misfit(value, one, where) for one in shape]
        if not all(faults):
            return ""
        inner = [fault for fault in faults if not fault.startswith(f"{where or 'it'} is ")]
        return inner[-1] if inner else _expected(where, value, " or ".join(map(_described, shape)))
    if isinstance(shape, list) and isinstance(value, list):
        of_entries = (misfit(entry, shape[0], f"{where}[{i}]") for i, entry in enumerate(value))
        return next(filter(None, of_entries), "")
    if isinstance(shape, dict) and isinstance(value, dict):
        return _misfit_of_object(value, shape, where)
    return "" if _holds(value, shape) else _expected(where, value, _described(shape))


def _misfit_of_object(value: dict[str, Any], shape: dict[Any, Shape], where: str) -> str:
    for key, inner in shape.items():
        if not isinstance(key, str):
            of_keys = (misfit(name, key, f"a key of {where or 'it'}") for name in value)
            of_values = (misfit(one, inner, _join(where, name)) for name, one in value.items())
            fault = next(filter(None, (*of_keys, *of_values)), "")
        elif key.removesuffix("?") in value:
            name = key.removesuffix("?")
            fault = misfit(value[name], inner, _join(where, name))
        else:
            fault = "" if key.endswith("?") else f"it has no key {_join(where, key)!r}"
        if fault:
            return fault
    return ""


def _holds(value: Any, shape: Shape) -> bool:
    if isinstance(shape, Rule):
        return shape.holds(value)
    if shape is None or shape is object:
        return shape is object or value is None
    return _is_number(value) if shape is float else type(value) is shape


def _is_number(value: Any) -> bool:
    if type(value) is int:
        return abs(value) < 2**1000  # within the range of floats
    return type(value) is float and math.isfinite(value)


def _described(shape: Shape) -> str:
    return shape.words if isinstance(shape, Rule) else _KINDS.get(type(shape)) or _WORDS[shape]


def _expected(where: str, value: Any, expected: str) -> str:
    return f"{where or 'it'} is {_KINDS.get(type(value)) or _shown(value)}, expected {expected}"


def _shown(value: Any) -> str:
    if type(value) is int and abs(value) > 10**15:
        return "a whole number of many digits"  # Python prints none of more than 4,300
    return ascii(value)[:60]


def _join(where: str, key: str) -> str:
    name = key if key.isprintable() else ascii(key)[1:-1]
    return f"{where}.{name[:60]}" if where else name[:60]
