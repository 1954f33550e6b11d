"""Read and check a section of settings; each error is one line that names the key."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import math
import re
import reprlib
import types
import typing
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

from histo_monai.utils.errors import InputError
from histo_monai.utils.settings.by_name import SectionByName
from histo_monai.utils.settings.rules import (
    Ascending,
    ByName,
    NamedIn,
    NumberOf,
    OneOrSeveral,
    Range,
    SectionsOf,
    Unique,
)

_SCIENTIFIC = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]{1,3}")
_UNIONS = (types.UnionType, typing.Union)  # of a value and None
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxstring, _SHORT.maxother = 2, 10, 80, 80


class ParamsError(InputError):
    """A params file is unusable: one line with the key and the expected value."""


def read_section(cls: Any, tree: object, where: str) -> Any:
    """A section of class `cls` from a tree of YAML values; `where` is its dotted name, empty for the whole file.

    Raises:
        ParamsError: A key is unknown or missing, or a value contradicts the field's annotation.
    """
    hints = typing.get_type_hints(cls, include_extras=True)
    beside = {key: rule for key, hint in hints.items() if (rule := _beside(hint)) is not None}
    fields = [field.name for field in dataclasses.fields(cls) if field.name not in beside]
    parts_of = {key: rule.names() for key, rule in beside.items()}
    parts = [name for names in parts_of.values() for name in names]
    tree = _with_keys(tree, where, {key: hints[key] for key in fields}, parts)
    values = {key: _value(hints[key], tree[key], _join(where, key)) for key in fields}
    for key, rule in beside.items():
        values[key] = _sections(rule, {name: tree[name] for name in tree if name in parts_of[key]}, where)
    return cls(**values)


def as_tree(value: Any) -> Any:
    """A section as YAML values, the inverse of `read_section`; lists stay tuples."""
    if isinstance(value, SectionByName):
        value = value.values
    if isinstance(value, Mapping):
        return {key: as_tree(inner) for key, inner in value.items()}
    if not dataclasses.is_dataclass(value):
        return value
    hints = typing.get_type_hints(type(value), include_extras=True)
    tree: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        inner = as_tree(getattr(value, field.name))
        if _is_one_or_several(hints[field.name]) and len(inner) == 1:
            (inner,) = inner
        tree |= inner if _beside(hints[field.name]) else {field.name: inner}
    return tree


def _with_keys(tree: object, where: str, hints: Mapping[str, Any], optional: list[str]) -> Mapping[str, Any]:
    """The tree, checked to have all keys of `hints` and no others but `optional` ones."""
    if not isinstance(tree, Mapping):
        raise ParamsError(f"{where or 'the file'}: expected a section with keys, got {_show(tree)}")
    for key in tree:
        if key not in hints and key not in optional:
            raise ParamsError(f"{_join(where, key)}: unknown key{_advice(key, [*hints, *optional])}")
    for key, hint in hints.items():
        if key not in tree:
            line = f"{key}: null" if typing.get_origin(hint) in _UNIONS else f"{key}: ..."
            raise ParamsError(
                f"{_join(where, key)}: missing key; expected {_describe(hint)}. Fix: add `{line}`{_below(where)}"
            )
    return tree


def _below(where: str) -> str:
    return f" below {where}" if where else ""


def _beside(hint: Any) -> SectionsOf | None:
    rules = typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()
    return next((rule for rule in rules if isinstance(rule, SectionsOf) and rule.beside), None)


def _is_one_or_several(hint: Any) -> bool:
    return any(isinstance(rule, OneOrSeveral) for rule in typing.get_args(hint)[1:])


def _value(hint: Any, value: Any, where: str) -> Any:
    if typing.get_origin(hint) not in _UNIONS:
        return _given(hint, value, where, _describe(hint))
    return None if value is None else _given(typing.get_args(hint)[0], value, where, _describe(hint))


def _given(hint: Any, value: Any, where: str, expected: str) -> Any:
    rules: tuple[Any, ...] = ()
    if typing.get_origin(hint) is Annotated:
        hint, *rest = typing.get_args(hint)
        rules = tuple(rest)
    if dataclasses.is_dataclass(hint):
        return read_section(hint, value, where)
    if rules and isinstance(rules[0], SectionsOf | ByName):
        return _of_names(rules[0], value, where)
    if typing.get_origin(hint) is tuple:
        value = _entries(typing.get_args(hint)[0], rules, value, where, expected)
    elif typing.get_origin(hint) is Literal:
        if value not in typing.get_args(hint):
            raise ParamsError(f"{where}: expected {expected}, got {_show(value)}")
    else:
        read = _plain_mapping if typing.get_origin(hint) is dict else partial(_scalar, hint)
        value = read(value, where, expected)
    for rule in rules:
        if not _holds(rule, value):
            advice = _did_you_mean(value, rule.names()) if isinstance(rule, NamedIn) else ""
            raise ParamsError(f"{where}: expected {expected}, got {_show(value)}{advice}")
    return value


def _entries(hint: Any, rules: tuple[Any, ...], value: Any, where: str, expected: str) -> tuple[Any, ...]:
    if isinstance(value, list):
        return tuple(_value(hint, item, f"{where}[{i}]") for i, item in enumerate(value))
    if not any(isinstance(rule, OneOrSeveral) for rule in rules):
        raise ParamsError(f"{where}: expected {expected}, got {_show(value)}")
    return (_value(hint, value, where),)


def _plain_mapping(value: object, where: str, expected: str) -> dict[str, Any]:
    """Names with numbers, text, true, false or null: arguments of a library, which checks them."""
    if not isinstance(value, Mapping) or not all(
        isinstance(key, str) and key.isidentifier() for key in value
    ):
        raise ParamsError(f"{where}: expected {expected}, got {_show(value)}")
    plain: dict[str, Any] = {}
    for key, inner in value.items():
        is_finite = not isinstance(inner, float) or math.isfinite(inner)
        if not isinstance(inner, int | float | str | None) or not is_finite:
            raise ParamsError(
                f"{where}.{key}: expected a finite number, text, true, false or null, got {_show(inner)}"
            )
        plain[key] = float(inner) if isinstance(inner, str) and _SCIENTIFIC.fullmatch(inner) else inner
    return plain


def _sections(rule: SectionsOf, tree: object, where: str) -> dict[str, Any]:
    if not isinstance(tree, Mapping):
        raise ParamsError(f"{where}: expected a section with keys, got {_show(tree)}")
    for name in tree:
        if rule.section(name) is None:
            raise ParamsError(f"{_join(where, name)}: unknown key{_advice(name, rule.names())}")
    return {name: read_section(rule.section(name), tree[name], _join(where, name)) for name in tree}


def _of_names(rule: SectionsOf | ByName, value: object, where: str) -> Any:
    return _sections(rule, value, where) if isinstance(rule, SectionsOf) else _by_name(rule, value, where)


def _by_name(rule: ByName, value: object, where: str) -> Any:
    section: type[Any] = rule.hint
    if not dataclasses.is_dataclass(section):
        return _one_or_each(rule, section, value, where)
    hints = typing.get_type_hints(section, include_extras=True)
    hints = {field.name: hints[field.name] for field in dataclasses.fields(section)}
    tree = _with_keys(value, where, hints, [])
    values = {key: _one_or_each(rule, hint, tree[key], _join(where, key)) for key, hint in hints.items()}
    return SectionByName(section, values)


def _one_or_each(rule: ByName, hint: Any, value: object, where: str) -> Any:
    if not isinstance(value, Mapping):
        return _value(hint, value, where)
    tree = _with_keys(value, where, dict.fromkeys(rule.needed(), hint), rule.names())
    return {name: _value(hint, tree[name], _join(where, name)) for name in tree}


def _advice(key: object, known: list[str]) -> str:
    return _did_you_mean(key, known) or f"; known here: {', '.join(known)}"


def _did_you_mean(key: object, known: list[str]) -> str:
    close = difflib.get_close_matches(str(key), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _scalar(hint: type, value: Any, where: str, expected: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            value = float(value)
        except OverflowError:
            raise ParamsError(f"{where}: expected {expected}, got {_show(value)}") from None
    if hint is float and isinstance(value, str):
        # YAML 1.1 readers take 1e-4 for text and write it back in quotes.
        if not _SCIENTIFIC.fullmatch(value):
            raise ParamsError(f"{where}: expected {expected}, got {_show(value)}")
        value = float(value)
    if type(value) is not hint:
        raise ParamsError(f"{where}: expected {expected}, got {_show(value)}")
    return value


def _holds(rule: object, value: Any) -> bool:
    if isinstance(rule, Range):
        return value in rule
    if isinstance(rule, Unique):
        return len(set(value)) == len(value) >= rule.at_least
    if isinstance(rule, NumberOf):
        return len(value) == rule.count
    if isinstance(rule, Ascending):
        enough = len(value) >= rule.at_least and rule.length in (None, len(value))
        return enough and all(a < b for a, b in itertools.pairwise(value))
    if isinstance(rule, NamedIn):
        return value in rule
    raise TypeError(f"no such rule: {rule!r}")


def _describe(hint: Any) -> str:
    if typing.get_origin(hint) in _UNIONS:
        return f"{_describe(typing.get_args(hint)[0])}, or null"
    if typing.get_origin(hint) is Annotated:
        inner, *rules = typing.get_args(hint)
        if isinstance(rules[0], ByName) and not dataclasses.is_dataclass(rules[0].hint):
            return _describe(rules[0].hint)
        if isinstance(rules[0], NamedIn | SectionsOf | ByName):
            return str(rules[0])
        if isinstance(rules[0], Range):
            return f"{_describe(inner)} in {rules[0]}"
        return f"{rules[0]} ({_describe(inner)})"
    if dataclasses.is_dataclass(hint):
        return "a section"
    if typing.get_origin(hint) is Literal:
        return " or ".join(str(choice) for choice in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return f"entries: {_describe(typing.get_args(hint)[0])}"
    if typing.get_origin(hint) is dict:
        return "a section of names with numbers or text"
    names = {
        int: "an integer",
        float: "a number",
        bool: "true or false",
        str: "text",
        types.NoneType: "nothing",
    }
    return names[hint]


def _show(value: object) -> str:
    if value is None:
        return "nothing"
    try:
        return _SHORT.repr(list(value) if isinstance(value, tuple) else value)
    except ValueError:  # Python prints no whole number of more than 4300 digits
        return "a number of thousands of digits"


def _join(where: str, key: object) -> str:
    name = str(key)[:80]
    return f"{where}.{name}" if where else name
