"""Params files and command lines of the version before the renames."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from histo_monai.pipeline.cli import main
from histo_monai.pipeline.params import load_params
from histo_monai.pipeline.params.renamed import RENAMED, RenamedKeysError, check_renamed

OLD = """
corpus: own
methods: [random]
students: [paper]
seeds: [0]
whole_slides: {methods: [], students: []}
embed: {mpp: 1.0}
pretrain:
  seeds: [0]
finetune:
  recipe:
    two_classes: {trunk_rate: 1.0, decay: 0.99, plain_share: 0.3, stain: 0.1, choose_stages: true, probe: true}
    scores: {start_shares: [0.0]}
  own: {plain_share: 0.3}
consistency:
  recipe: {keep_shares: true, decay: 0.9}
  methods:
    neighbors: {plain_share: 0.1, stain: 0.3}
heatmap:
  own: {positive: tumor}
"""
NEW_OF_OLD = {
    "corpus": "pretraining_dataset",
    "methods": "pretraining_methods",
    "students": "semisupervised_methods",
    "seeds": "training_seeds",
    "whole_slides": "slide_level",
    "embed": "features",
    "whole_slides.methods": "pretraining_methods",
    "whole_slides.students": "semisupervised_methods",
    "pretrain.seeds": "pretraining_seeds",
    "finetune.recipe.two_classes.trunk_rate": "backbone_lr_factor",
    "finetune.recipe.two_classes.decay": "ema_decay",
    "finetune.recipe.two_classes.plain_share": "unaugmented_fraction",
    "finetune.recipe.two_classes.stain": "stain_jitter",
    "finetune.recipe.two_classes.choose_stages": "select_depth",
    "finetune.recipe.two_classes.probe": "linear_init",
    "finetune.recipe.scores.start_shares": "interpolation_weights",
    "finetune.own.plain_share": "unaugmented_fraction",
    "consistency.recipe.keep_shares": "match_class_proportions",
    "consistency.recipe.decay": "ema_decay",
    "consistency.methods.neighbors": "spatial_neighbors",
    "consistency.methods.neighbors.plain_share": "unaugmented_fraction",
    "consistency.methods.neighbors.stain": "stain_jitter",
    "heatmap.own.positive": "positive_class",
}


def test_every_old_key_is_refused_in_a_line_with_its_first_place_and_its_new_name() -> None:
    with pytest.raises(RenamedKeysError) as caught:
        check_renamed(yaml.safe_load(OLD))
    line = re.compile(r"`(\S+)`(?: and \d more)?: renamed\. Fix: write `(\w+)`(?: at the top level)?\.")
    stated = [(match[1], match[2]) for match in map(line.fullmatch, caught.value.lines) if match]
    assert dict(stated).items() <= NEW_OF_OLD.items()
    assert len(stated) == len(caught.value.lines) == len(RENAMED)
    assert {(old.rpartition(".")[2], new) for old, new in stated} == {rule[1:] for rule in RENAMED}
    assert (
        "`finetune.recipe.two_classes.decay` and 1 more: renamed. Fix: write `ema_decay`."
        in caught.value.lines
    )


def test_no_old_key_is_passed_over() -> None:
    for old, new in NEW_OF_OLD.items():
        tree: Any = None
        for key in reversed(old.split(".")):
            tree = {key: tree}
        with pytest.raises(RenamedKeysError, match=f"`{re.escape(old)}`: renamed. Fix: write `{new}`"):
            check_renamed(tree)


@pytest.mark.parametrize("name", ["params.yaml", "params/paper.yaml"])
def test_committed_files_hold_new_names_and_no_old_one(name: str, root: Path) -> None:
    text = (root / name).read_text()
    check_renamed(yaml.safe_load(text))
    missing = {new for _, _, new in RENAMED if f"{new}:" not in text}
    assert missing <= ({"select_depth", "linear_init", "spatial_neighbors"} if "paper" in name else set())


def test_a_method_may_have_settings_of_its_own_by_old_names() -> None:
    check_renamed({"consistency": {"methods": {"toy": {"decay": 0.5, "stain": 0.1, "seeds": [0]}}}})


def test_a_command_prints_a_line_for_each_old_key(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tree: Any = yaml.safe_load((root / "params.yaml").read_text())
    tree["methods"], tree["pretrain"]["seeds"] = (
        tree.pop("pretraining_methods"),
        tree.pop("pretraining_seeds"),
    )
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(tree))
    monkeypatch.chdir(tmp_path)
    assert main(["index"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "histo-monai index: error: params.yaml: `methods`: renamed. Fix: write `pretraining_methods`. "
        "[docs/params.md]",
        "histo-monai index: error: params.yaml: `pretrain.seeds`: renamed. Fix: write `pretraining_seeds` at the top "
        "level. [docs/params.md]",
    ]
    with pytest.raises(RenamedKeysError, match="`methods`: renamed"):
        load_params(Path("params.yaml"))


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (
            ["pretrain", "--method", "rsp", "--encoder", "0"],
            "--encoder: renamed. Fix: write --pretraining-seed.",
        ),
        (["map", "a.svs", "--model", "m", "--folder=maps"], "--folder: renamed. Fix: write --output."),
        (["map", "a.svs", "--positive", "tumor"], "--positive: renamed. Fix: write --positive-class."),
    ],
)
def test_an_old_option_is_refused_with_its_new_name(
    call: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(call)
    assert caught.value.code == 2
    assert line in capsys.readouterr().err
