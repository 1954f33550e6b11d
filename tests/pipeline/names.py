"""Names of stages, as DVC makes them."""

from __future__ import annotations


def run_of(stage: str, method: str) -> str:
    """A stage of a method, with seed 0 and the student of the tests where it has them."""
    return f"{stage}@{method}" + {"pretrain": "", "finetune": "-0"}.get(stage, "-mixed_teacher-0")
