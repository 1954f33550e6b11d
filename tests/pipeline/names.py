"""Names of stages, as DVC makes them."""

from __future__ import annotations


def run_of(stage: str, method: str, student: str = "spatial_neighbors") -> str:
    """A stage of a method, of encoder 0, with a student and seed 0 where it has them."""
    return f"{stage}@{method}-0" + {"pretrain": "", "features": "", "finetune": "-0", "mil": "-0"}.get(
        stage, f"-{student}-0"
    )
