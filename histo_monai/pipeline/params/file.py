"""YAML reader of params.yaml, equal to DVC's, so that DVC records the values that ran."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, Event, ScalarEvent

from histo_monai.utils.settings.reader import ParamsError
from histo_monai.utils.storage import InputFileError, read_text

NO_PROJECT = "run from the project's root, or make a project: histo-monai init FOLDER"
"""Fix of a missing params.yaml."""
_LIMIT = 2**18
_DEEPEST = 20
_MOST = 10_000
_DVC_READS_BY = "safe"  # dvc.utils.serialize._yaml.parse_yaml; tests/pipeline/test_params.py compares the two


def read_tree(path: Path) -> object:
    """Values of a params file: YAML 1.2, as DVC reads it.

    Also refused: duplicate keys, tags, merge keys, more than 256 KiB, more than 20 levels, and more than 10,000 values
    with aliases expanded, because a kilobyte of aliases can expand to gigabytes.

    Raises:
        ParamsError: one line with file, place and fix.
    """
    try:
        text = read_text(path, _LIMIT)
    except InputFileError as error:
        raise ParamsError(str(error) if path.exists() else f"{error}. Fix: {NO_PROJECT}") from None
    try:
        return copy.deepcopy(_parsed(text))
    except ParamsError as error:
        raise ParamsError(f"{path}, {error}") from None
    except MarkedYAMLError as error:
        place = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        raise ParamsError(f"{path}{place}: not YAML that DVC reads: {_one_line(error.problem)}") from None
    except (YAMLError, ValueError) as error:  # ValueError: an invalid date or number
        raise ParamsError(f"{path}: not YAML that DVC reads: {_one_line(error)}") from None


@functools.lru_cache(maxsize=4)  # command line and stage read the same file
def _parsed(text: str) -> object:
    _check_plain(text)
    return YAML(typ=_DVC_READS_BY).load(text)


@dataclass
class _Node:
    """Size of a YAML value.

    Attributes:
        anchor: name for aliases; None without.
        size: number of values, itself included, aliases expanded.
        depth: levels below it, aliases expanded.
    """

    anchor: str | None
    size: int = 1
    depth: int = 0


def _check_plain(text: str) -> None:
    """Check size, depth and syntax without building values.

    Raises:
        ParamsError: the message begins with the line number.
    """
    open_nodes, anchored = [_Node(None)], dict[str, _Node]()
    for event in YAML(typ=_DVC_READS_BY).parse(text):
        what = _forbidden(event)
        if isinstance(event, AliasEvent):
            node = anchored.get(event.anchor)
            what = what if node else f"the alias *{event.anchor} refers to itself or to nothing"
            _add(node or _Node(None), open_nodes)
        elif isinstance(event, CollectionStartEvent):
            open_nodes.append(_Node(event.anchor))
        elif isinstance(event, (ScalarEvent, CollectionEndEvent)):
            node = open_nodes.pop() if isinstance(event, CollectionEndEvent) else _Node(event.anchor)
            _add(node, open_nodes)
            if node.anchor is not None:
                anchored[node.anchor] = node
        if len(open_nodes) + open_nodes[-1].depth > _DEEPEST:
            what = f"nested deeper than {_DEEPEST}; params have sections, values and lists of them"
        if open_nodes[-1].size > _MOST:
            what = f"more than {_MOST} values, aliases written out; params have some hundred"
        if what is not None:
            raise ParamsError(f"line {event.start_mark.line + 1}: {what}")


def _add(node: _Node, open_nodes: list[_Node]) -> None:
    around = open_nodes[-1]
    around.size += node.size
    around.depth = max(around.depth, node.depth + 1)


def _forbidden(event: Event) -> str | None:
    if getattr(event, "value", None) == "<<":
        return "merge keys (<<) are not read. Fix: write out the values"
    tag = getattr(event, "tag", None)
    if tag is not None:
        return f"tags ({tag}) are not read. Fix: write the value without a tag"
    return None


def _one_line(problem: object) -> str:
    return " ".join(str(problem).split())[:300]
