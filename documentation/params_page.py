"""docs/params.md: what is allowed and what the two files of params say is filled in; the rest is written by hand.

python -m documentation.params_page     # fills the page
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from histo_monai.data.readers.registry import DATASETS
from histo_monai.pipeline.params.file import read_tree
from histo_monai.pipeline.params.sections import Params
from histo_monai.pretraining import PRETEXTS
from histo_monai.semisupervised import METHODS
from histo_monai.utils.settings.recipe import LABEL_KINDS
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

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/params.md"
FILES = (ROOT / "params.yaml", ROOT / "params/paper.yaml")
COLUMNS = ("param", "unit", "allowed", "`params.yaml`", "`params/paper.yaml`", "meaning", "source")
_FILLED = slice(2, 5)
_PARTS = {"dataset": DATASETS, "method": PRETEXTS, "student": METHODS}
_OF_NAME = f"(\\.({'|'.join((*DATASETS, *LABEL_KINDS))}))?"  # of a value that differs by name
_UNIONS = (types.UnionType, typing.Union)


def leaves(tree: Mapping[str, Any], way: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted key and value of all that is no section with something in it."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{way}{key}.")
        else:
            yield f"{way}{key}", value


def rows(page: str) -> list[list[str]]:
    """Cells of every row of a table whose first cell is a param."""
    lines = [line for line in page.splitlines() if line.startswith("| `")]
    return [_cells(line) for line in lines]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def pattern(param: str) -> re.Pattern[str]:
    """The keys that a row is about: `<dataset>` and the like stand for any, `<a,b>` for these two."""
    way = re.sub(
        r"<([^>]+)>",
        lambda match: f"({'|'.join(_PARTS.get(match[1], match[1].split(',')))})",
        param.strip("`").replace(".", r"\."),
    )
    return re.compile(way + _OF_NAME)


def rule_of(key: str) -> Any:
    """The annotation that a dotted key of params is read by."""
    hint: Any = Params
    for name in key.split("."):
        if isinstance(hint, SectionsOf):
            hint = hint.section(name)
            continue
        if typing.get_origin(hint) in _UNIONS:  # a section, or null
            hint = typing.get_args(hint)[0]
        hint = _value_by_name(hint)
        if not dataclasses.is_dataclass(hint):  # the last name is a kind of labels or a dataset
            break
        hints = typing.get_type_hints(hint, include_extras=True)
        beside = [
            rule for rule in map(_sections, hints.values()) if rule and rule.beside and name in rule.names()
        ]
        hint = beside[0].section(name) if beside else _sections(hints[name]) or hints[name]
    return _value_by_name(hint)


def _value_by_name(hint: Any) -> Any:
    """The annotation of the value, where a mapping of names may stand in its place; any other as it is."""
    rules = typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()
    return next((rule.hint for rule in rules if isinstance(rule, ByName)), hint)


def _sections(hint: Any) -> SectionsOf | None:
    rules = typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()
    return next((rule for rule in rules if isinstance(rule, SectionsOf)), None)


def allowed(hint: Any) -> str:
    """What a value may be, in words."""
    if typing.get_origin(hint) in _UNIONS:
        return f"{allowed(typing.get_args(hint)[0])}; null"
    rules: tuple[Any, ...] = ()
    if typing.get_origin(hint) is Annotated:
        hint, *rest = typing.get_args(hint)
        rules = tuple(rest)
    if dataclasses.is_dataclass(hint):
        return "nothing to set"
    if typing.get_origin(hint) is Literal:
        return ", ".join(typing.get_args(hint))
    if typing.get_origin(hint) is dict:
        return "names with numbers or text"
    if typing.get_origin(hint) is tuple:
        return f"{_list(rules[0])}: {allowed(typing.get_args(hint)[0])}"
    for rule in rules:
        if isinstance(rule, NamedIn):
            return ", ".join(rule.names())
        if isinstance(rule, Range):
            return _range(rule, hint)
    return {int: "whole number", float: "number", bool: "true, false", str: "text"}[hint]


def _range(rule: Range, kind: type) -> str:
    whole = "whole, " if kind is int else ""
    low, high = f"{rule.low:.10g}", f"{rule.high:.10g}"
    sign = ">" if rule.exclusive_low else "≥"
    if rule.high >= 10**12:
        return f"{whole}{sign} {low}"
    return f"{whole}{f'> {low}, ≤ {high}' if rule.exclusive_low else f'{low}..{high}'}"


def _list(rule: Unique | Ascending | NumberOf) -> str:
    if isinstance(rule, NumberOf):
        return f"{rule.count} of"
    if isinstance(rule, OneOrSeveral):
        return "one value or a list"
    if isinstance(rule, Unique):
        return "one or more" if rule.at_least else "any number"
    return f"{rule.length or ('one or more' if rule.at_least else 'any number')}, ascending"


def _show(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ", ".join(map(_show, value)) or "[]"
    if isinstance(value, Mapping):
        return "{}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _values(tree: Mapping[str, Any], keys: re.Pattern[str]) -> str:
    shown = [_show(value) for key, value in leaves(tree) if keys.fullmatch(key)]
    one = list(dict.fromkeys(shown))
    return (one[0] if len(one) == 1 else " / ".join(shown)) if shown else "–"


def filled(page: str) -> str:
    """The page with what is allowed and what the files say, from these."""
    trees = [cast(Mapping[str, Any], read_tree(path)) for path in FILES]
    known = [key for key, _ in leaves(trees[0])]
    lines = page.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("| `"):
            cells = _cells(line)
            keys = pattern(cells[0])
            rules = dict.fromkeys(allowed(rule_of(key)) for key in known if keys.fullmatch(key))
            cells[_FILLED] = [" / ".join(rules), *(_values(tree, keys) for tree in trees)]
            lines[number] = f"| {' | '.join(cells)} |"
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
