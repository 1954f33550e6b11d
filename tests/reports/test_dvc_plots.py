from __future__ import annotations

import json
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["labels", "sweep"])
def test_the_templates_for_dvc_plots_have_dvcs_anchors_and_a_color_for_each_pretraining(
    root: Path, name: str
) -> None:
    text = (root / ".dvc" / "plots" / f"{name}.json").read_text(encoding="utf-8")
    template = json.loads(text)
    assert template["data"] == {"values": "<DVC_METRIC_DATA>"}
    assert all(f"<DVC_METRIC_{anchor}>" in text for anchor in ("X", "Y", "TITLE", "X_LABEL", "Y_LABEL"))
    scale = template["spec"]["encoding"]["color"]["scale"]
    assert scale["domain"] == ["random", "vae", "moco", "rsp", "rsp_moco", "dino"]
    assert len(set(scale["range"])) == 6
