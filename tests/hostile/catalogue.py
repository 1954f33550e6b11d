"""All cases, kind by kind."""

from __future__ import annotations

from tests.hostile.case import Case
from tests.hostile.kinds import (
    annotations,
    archives,
    calls,
    checkpoints,
    doors,
    folders,
    leaks,
    manifests,
    models,
    params,
    patches,
    public,
    slides,
    tables,
)

_MODULES = (
    params,
    slides,
    manifests,
    patches,
    leaks,
    archives,
    annotations,
    tables,
    models,
    calls,
    checkpoints,
    doors,
    folders,
    public,
)
KINDS = tuple(dict.fromkeys(case.kind for module in _MODULES for case in module.cases()))


def all_cases() -> list[Case]:
    """Every case; names are unique within a kind."""
    result = [case for module in _MODULES for case in module.cases()]
    titles = [case.title for case in result]
    twice = {title for title in titles if titles.count(title) > 1}
    if twice:
        raise ValueError(f"two cases of one name: {', '.join(sorted(twice))}")
    return result
