"""Values of params by the names that dvc.yaml gives them: what a stage depends on, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from histo_monai.pipeline.params.sections import Params
from histo_monai.utils.settings.reader import as_tree


def selected(params: Params, names: Iterable[str], method: str = "", student: str = "") -> dict[str, Any]:
    """Plain values by dotted name.

    Args:
        params: of the experiment.
        names: as under `params` of a stage in dvc.yaml: `${dataset}`, `${pretraining_dataset}`, `${item.method}` and
            `${item.student}` may be in them.
        method: what `${item.method}` stands for.
        student: what `${item.student}` stands for.

    Returns:
        For JSON: name, filled in -> value; a section is a dict.

    Raises:
        KeyError: there is no such value.
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
