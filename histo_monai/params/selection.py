"""Values of params by the names that dvc.yaml gives them: what a stage depends on, and nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from histo_monai.params.sections import Params


def selected(params: Params, names: Iterable[str], method: str = "", student: str = "") -> dict[str, Any]:
    """Plain values by dotted name.

    Args:
        params: of the experiment.
        names: as under `params` of a stage in dvc.yaml: `${dataset}`, `${corpus}`, `${item.method}` and
            `${item.student}` may be in them.
        method: what `${item.method}` stands for.
        student: what `${item.student}` stands for.

    Returns:
        For JSON: name, filled in -> value; a section is a dict.

    Raises:
        AttributeError: there is no such value.
    """
    filled = {
        "${dataset}": params.dataset,
        "${corpus}": params.corpus,
        "${item.method}": method,
        "${item.student}": student,
    }
    found: dict[str, Any] = {}
    for name in names:
        for template, text in filled.items():
            name = name.replace(template, text)
        value: Any = params
        for key in name.split("."):
            value = value[key] if isinstance(value, Mapping) else getattr(value, key)
        found[name] = dataclasses.asdict(value) if dataclasses.is_dataclass(type(value)) else value
    return found
