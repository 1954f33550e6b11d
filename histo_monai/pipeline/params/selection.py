"""Params by the dotted names of dvc.yaml, the values that a stage depends on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from histo_monai.pipeline.params.sections import Params
from histo_monai.utils.settings.reader import as_tree


def selected(params: Params, names: Iterable[str], method: str = "", student: str = "") -> dict[str, Any]:
    """Params by dotted name, as JSON values.

    Args:
        names: `params` of a stage in dvc.yaml, with `${dataset}`, `${pretraining_dataset}`, `${item.method}` or
            `${item.student}` in them.
        method: value of `${item.method}`.
        student: value of `${item.student}`.

    Returns:
        Name without templates -> value; a section is a dict.

    Raises:
        KeyError: a name is unknown.
    """
    filled = {
        "${dataset}": params.dataset,
        "${pretraining_dataset}": params.pretraining_dataset,
        "${item.method}": method,
        "${item.student}": student,
    }
    tree = as_tree(params)
    chosen: dict[str, Any] = {}
    for name in names:
        for template, text in filled.items():
            name = name.replace(template, text)
        value: Any = tree
        for key in name.split("."):
            value = value[key]
        chosen[name] = value
    return chosen
