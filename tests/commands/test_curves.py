"""The command `curves` on experiments whose files are made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from histo_monai.pipeline.cli import main
from histo_monai.pipeline.experiments import families
from tests.sweeps import MadeUp, list_experiments, sweep


@pytest.fixture
def tree(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The committed params, in a folder of their own that is the working folder."""
    text = (root / "params.yaml").read_text()
    (tmp_path / "params.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    return yaml.safe_load(text) | {
        "pretraining_methods": ["random", "rsp"],
        "semisupervised_methods": ["paper"],
        "mu": 7,
    }


@pytest.mark.slow
def test_a_sweep_becomes_tables(
    tree: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    list_experiments(monkeypatch, *sweep(tree), failed=("focal-bice",))
    assert main(["curves"]) == 0
    folder = Path("data/curves")
    points = pd.read_csv(folder / "points.csv")
    accuracy = points[points["metric"] == "accuracy"]
    assert len(accuracy) == 2 * 4 * (1 + 2)  # methods, alphas, fine-tuned once and two students
    assert set(accuracy["num_labels"]) == {60, 150, 300, 600}
    assert (accuracy["low"] <= accuracy["value"]).all()
    assert (accuracy["value"] <= accuracy["high"]).all()
    saved = pd.read_csv(folder / "labels_saved.csv")
    assert set(saved.loc[saved["metric"] == "accuracy", "method"]) == {"random", "rsp"}
    assert set(pd.read_csv(folder / "labels_needed.csv")["metric"]) == {
        "accuracy",
        "weighted_f1",
        "macro_auc",
    }


def test_a_failed_experiment_is_named_and_notes_among_the_curves_are_not_lost(
    tree: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    list_experiments(monkeypatch, MadeUp("only", tree), failed=("focal-bice",))
    notes = Path("data/curves/notes.txt")
    notes.parent.mkdir(parents=True)
    assert main(["curves"]) == 0
    notes.write_text("mine")
    assert main(["curves"]) == 1
    assert "data/curves/notes.txt: exists, and this command did not write it" in capsys.readouterr().err
    assert notes.read_text() == "mine"
    assert "experiment=focal-bice excluded" in caplog.text


def test_without_an_experiment_the_error_states_how_to_run_one(
    tree: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    list_experiments(monkeypatch)
    assert main(["curves"]) == 1
    assert "experiments: none has finished. Fix: run one, e.g. `dvc exp run" in capsys.readouterr().err
    assert not Path("data/curves").exists()


def test_other_test_patches_are_not_drawn_together(
    tree: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Other(MadeUp):
        def fetch(self, path: Path, target: Path) -> None:
            super().fetch(path, target)
            target.write_text(target.read_text().replace("p0,", "q0,"))

    list_experiments(monkeypatch, MadeUp("one", tree), Other("two", tree | {"alpha": 0.25}))
    assert main(["curves"]) == 1
    assert "'p0' in one and 'q0' in the other" in capsys.readouterr().err
    assert not Path("data/curves").exists()


def test_families_differ_in_more_than_what_is_swept(tree: Any) -> None:
    slower = json.loads(json.dumps(tree))
    slower["finetune"]["paper"]["lr"]["camelyon16"] = 0.001
    elsewhere = json.loads(json.dumps(tree))
    elsewhere["finetune"]["paper"]["lr"]["kather"] = 0.001  # not this experiment's dataset
    elsewhere["report"]["num_slides"] += 1  # has no effect on patches
    elsewhere["mil"]["epochs"] += 1
    elsewhere["check"]["num_pictures"] += 1
    longer = json.loads(json.dumps(tree))
    longer["finetune"]["recipe"]["epochs"] = 7
    named = families(
        [
            MadeUp("a", tree),
            MadeUp("b", tree | {"alpha": 0.5, "n_aug": 2, "training_seeds": [3]}),
            MadeUp("c", slower),
            MadeUp("d", tree | {"dataset": "kather"}),
            MadeUp("e", elsewhere),
            MadeUp("f", longer),
        ]  # type: ignore[list-item]
    )
    assert [(family.name, [e.name for e in family.experiments]) for family in named] == [
        ("camelyon16", ["a", "b", "e"]),
        ("camelyon16-2", ["c"]),
        ("kather", ["d"]),
        ("camelyon16-3", ["f"]),
    ]
    assert [family.differences for family in named] == [
        "",
        " (finetune.paper.lr=0.001)",
        "",
        " (finetune.recipe.epochs=7)",
    ]


def test_params_of_another_version_are_named(tree: Any) -> None:
    old = {key: value for key, value in tree.items() if key != "n_aug"}
    with pytest.raises(ValueError, match=r"experiment old: .*n_aug: missing key.*dvc exp remove old"):
        families([MadeUp("old", old | {"mu": 7})])  # type: ignore[list-item]


class _CrossValidated(MadeUp):
    """Each experiment predicts the labels that it has itself."""

    def fetch(self, path: Path, target: Path) -> None:
        super().fetch(path, target)
        text = target.read_text().replace(",test,", ",validation,")
        target.write_text(text.replace("\np0,", f"\n{self.name},"))


def test_experiments_without_test_patches_have_no_common_curve(
    tree: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    both = [_CrossValidated(name, tree | {"alpha": alpha}) for name, alpha in (("one", 0.5), ("two", 1.0))]
    list_experiments(monkeypatch, *both)
    assert main(["curves"]) == 1
    assert "without test patches each is measured on its own labels" in capsys.readouterr().err


class _OneClass(MadeUp):
    """All test patches are of one class, so that no AUC is defined."""

    def fetch(self, path: Path, target: Path) -> None:
        super().fetch(path, target)
        target.write_text(target.read_text().replace(",tumor,", ",normal,"))


@pytest.mark.slow
def test_a_metric_without_a_value_has_no_curve_and_stops_none(
    tree: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_experiments(monkeypatch, *(_OneClass(f"e{a}", tree | {"alpha": a}) for a in (0.5, 1.0)))
    assert main(["curves"]) == 0
    needed = pd.read_csv("data/curves/labels_needed.csv")
    assert "accuracy" in set(needed["metric"])
    assert "macro_auc" not in set(needed["metric"])
    assert (Path("data/curves/index.html")).is_file()
