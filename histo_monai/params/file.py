"""The text of params.yaml -> plain values, by the very reader that DVC has, so that its record is what ran."""

from __future__ import annotations

import copy
import functools
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, Event, NodeEvent

from histo_monai.params.reader import ParamsError
from histo_monai.storage import InputFileError, read_text

_LIMIT = 2**18
_DEEPEST = 20
_DVC_READS_BY = "safe"  # dvc.utils.serialize._yaml.parse_yaml; tests/test_params.py compares the two


def read_tree(path: Path) -> object:
    """The values of a params file: YAML 1.2, as DVC reads it.

    Refused beside what is not YAML: a key that stands twice, tags, and anchors, aliases and merge keys, with which a
    file of a kilobyte can stand for gigabytes; and what is larger than 256 KiB or nested deeper than 20.

    Raises:
        ParamsError: one line with the file, the place and what to write.
    """
    try:
        text = read_text(path, _LIMIT)
    except InputFileError as error:
        where = "" if path.exists() else "; run from the project's root"
        raise ParamsError(f"{error}{where}") from None
    try:
        return copy.deepcopy(_parsed(text))
    except ParamsError as error:
        raise ParamsError(f"{path}, {error}") from None
    except MarkedYAMLError as error:
        place = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        raise ParamsError(f"{path}{place}: not YAML that DVC reads: {_one_line(error.problem)}") from None
    except (YAMLError, ValueError) as error:  # ValueError: a date or a number that is none
        raise ParamsError(f"{path}: not YAML that DVC reads: {_one_line(error)}") from None


@functools.lru_cache(maxsize=4)  # a command reads the file, and so does its stage
def _parsed(text: str) -> object:
    _check_plain(text)
    return YAML(typ=_DVC_READS_BY).load(text)


def _check_plain(text: str) -> None:
    """Go through the file without building anything from it.

    Raises:
        ParamsError: begins with the line.
    """
    depth = 0
    for event in YAML(typ=_DVC_READS_BY).parse(text):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        what = _forbidden(event, depth)
        if what is not None:
            raise ParamsError(f"line {event.start_mark.line + 1}: {what}")


def _forbidden(event: Event, depth: int) -> str | None:
    if isinstance(event, AliasEvent) or (isinstance(event, NodeEvent) and event.anchor is not None):
        return f"anchors and aliases ({event.anchor!r}) are not read; write the values out"
    if depth > _DEEPEST:
        return f"nested deeper than {_DEEPEST}; params have sections, values and lists of them"
    if getattr(event, "value", None) == "<<":
        return "merge keys (<<) are not read; write the values out"
    tag = getattr(event, "tag", None)
    if tag is not None:
        return f"tags ({tag}) are not read; write a plain value"
    return None


def _one_line(problem: object) -> str:
    return " ".join(str(problem).split())[:300]
