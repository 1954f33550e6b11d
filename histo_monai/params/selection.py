"""Values of params by the names that dvc.yaml gives them: what a stage depends on, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from histo_monai.params.sections import Params
from histo_monai.settings.reader import plain


def selected(params: Params, names: Iterable[str], method: str = "") -> dict[str, Any]:
    """Plain values by dotted name.

    Args:
        params: of the experiment.
        names: as under `params` of a stage in dvc.yaml: `${dataset}`, `${corpus}`, `${item.method}` and
            `${consistency.method}` may be in them.
        method: what `${item.method}` stands for.

    Returns:
        For JSON: name, filled in -> value; a section is a dict.

    Raises:
        KeyError: there is no such value.
    """
    filled = {
        "${dataset}": params.dataset,
        "${corpus}": params.corpus,
        "${item.method}": method,
        "${consistency.method}": params.consistency.method,
    }
    tree = plain(params)
    found: dict[str, Any] = {}
    for name in names:
        for template, text in filled.items():
            name = name.replace(template, text)
        found[name] = tree
        for key in name.split("."):
            found[name] = found[name][key]
    return found
