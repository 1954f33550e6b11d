"""All cases, kind by kind."""

from __future__ import annotations

from tests.hostile.case import Case
from tests.hostile.kinds import (
    annotations,
    archives,
    bounds,
    calls,
    checkpoints,
    corners,
    doors,
    folders,
    ids,
    leaks,
    levels,
    manifests,
    models,
    outlines,
    params,
    patches,
    public,
    regions,
    several_files,
    slides,
    tables,
    texts,
)

_MODULES = (
    params,
    slides,
    levels,
    manifests,
    patches,
    leaks,
    archives,
    annotations,
    outlines,
    regions,
    corners,
    bounds,
    tables,
    models,
    calls,
    checkpoints,
    doors,
    folders,
    public,
    ids,
    texts,
    several_files,
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
