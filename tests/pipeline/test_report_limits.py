"""Warnings of earlier stages among the limits of a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from histo_monai.pipeline import paths
from histo_monai.pipeline.paths import Run
from histo_monai.pipeline.stages import report

RUN = Run("random", 0, 0, "paper")


@pytest.mark.parametrize("of_maps", [["1 of 2 slides is unlike"], None], ids=["warned", "an earlier map"])
def test_slides_unlike_the_training_stand_among_the_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_maps: list[str] | None
) -> None:
    monkeypatch.chdir(tmp_path)
    contents: dict[Path, Any] = {
        paths.LABELS_JSON: {"warnings": ["of labels"]},
        paths.INDEX / paths.METRICS: {"patches_train": 3},
        RUN.student_folder / paths.METRICS: {"num_labeled": 3},
        RUN.heatmaps / paths.METRICS: {} if of_maps is None else {"warnings": of_maps},
    }
    for path, content in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    monkeypatch.setattr(report, "_splits", lambda comparison: [])
    monkeypatch.setattr(report, "results_section", lambda splits, warnings, *rest: warnings)
    limits = report._results({"warnings": ["of the comparison"], "about": {}}, None, RUN, [])
    assert limits == ["of the comparison", "of labels", *(of_maps or [])]
