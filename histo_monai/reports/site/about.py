"""Report sections: data, model cards, run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from histo_monai.data.tables.columns import SPLITS
from histo_monai.models.card import model_facts
from histo_monai.reports.site.blocks import (
    Block,
    Cell,
    Code,
    Facts,
    Lines,
    Picture,
    Pictures,
    Section,
    Table,
    missing,
)


def data_section(
    slides: pd.DataFrame,
    patches: pd.DataFrame,
    counts: Mapping[str, Any],
    audit: Sequence[str],
    pictures: Sequence[Picture],
) -> Section:
    """Section on slides, patches and audit.

    Args:
        slides: every slide once: `split`, `label`.
        patches: labeled: `split`, `label`, `slide_id`, `patient_id`.
        counts: of the index, by name.
        audit: data warnings, one line each.
        pictures: of slides with tissue and patches.
    """
    blocks: list[Block] = []
    if len(slides):
        blocks.append(_by_split("Slides", slides, "label"))
    if len(patches):
        what = "label" if (patches["label"] != "").any() else ""
        blocks.append(_by_split("Labeled patches", patches, what))
    shown = {name: value for name, value in counts.items() if isinstance(value, int)}
    rows = [[Cell(name.replace("_", " ")), Cell(f"{value:,}", float(value))] for name, value in shown.items()]
    blocks.append(Table("All counts of the index", ["", "number"], rows, folded=True))
    findings = list(audit) or ["The audit found no leak between training and test."]
    blocks.append(Lines(["Findings of the audit", *findings], "warning" if audit else ""))
    if pictures:
        note = "Pale: no tissue. Dots: patch centers of pretraining. Squares: labeled patches."
        blocks.append(Pictures("Tissue and patches", pictures, note, large=True))
    else:
        blocks.append(missing("No picture of a slide", "set check.num_pictures above 0"))
    return Section("data", "Data", blocks)


def _by_split(title: str, table: pd.DataFrame, by: str) -> Table:
    splits = [split for split in SPLITS if (table["split"] == split).any()]
    names = sorted(set(table[by])) if by else [""]
    rows = []
    for name in names:
        some = table[table[by] == name] if by else table
        numbers = [int((some["split"] == split).sum()) for split in splits]
        cells = [Cell(f"{num:,}", float(num)) for num in (*numbers, sum(numbers))]
        rows.append([Cell(name or "without a label" if by else "scored"), *cells])
    return Table(title, ["", *splits, "all"], rows)


def cards_section(descriptions: Mapping[str, Mapping[str, Any]]) -> Section:
    """Section with one card per model, from its JSON description."""
    blocks: list[Block] = [Facts(name, model_facts(about)) for name, about in descriptions.items()]
    return Section("models", "Models", blocks or [missing("No model", "no patch was labeled")])


def run_section(params: str, provenance: Mapping[str, Any]) -> Section:
    """Section with params and provenance of the comparison."""
    dirty = provenance.get("git_dirty")
    commit = provenance.get("git_commit")
    state = "" if dirty is None else ", with uncommitted changes" if dirty else ", without changes"
    facts = {
        "commit": f"{commit}{state}" if commit else "not in a git repository",
        "SHA-256 of the code": str(provenance.get("code_sha256")),
        "SHA-256 of the params": str(provenance.get("params_sha256")),
    }
    packages = provenance.get("packages") or {}
    blocks: list[Block] = [
        Facts("Code and params", facts),
        Code("params.yaml", params),
        Code("Inputs of the comparison (SHA-256)", json.dumps(provenance.get("inputs"), indent=2)),
        Code("Versions", "\n".join(f"{name} {version}" for name, version in packages.items())),
    ]
    return Section("run", "The run", blocks)
