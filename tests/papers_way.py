"""Params as committed, but trained as the paper has it: quick, and what most tests were written for."""

from __future__ import annotations

from typing import Any


def in_the_papers_way(tree: dict[str, Any]) -> dict[str, Any]:
    """A tree of params.yaml with the paper's student, fine-tuning in epochs and validation; changed in place."""
    tree |= {
        "pretraining_methods": ["random", "rsp"],
        "semisupervised_methods": ["paper"],
        "alpha": 0.1,
        "mu": 7,
    }
    tree["finetune"]["recipe"] = None
    tree["labels"]["breastpathq"]["unlabeled"] = tree["labels"]["own"]["unlabeled"] = 0
    for labels in tree["labels"].values():
        labels["validation"] = "separate"
    tree["slide_level"] |= {"pretraining_methods": ["rsp"], "semisupervised_methods": ["paper"]}
    return tree
