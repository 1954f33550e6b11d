"""`next`: a round of labels in one command, from no label to the page of the second round, also after failures."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from histo_monai.pipeline.cli import main
from histo_monai.pipeline.commands import dvc
from histo_monai.pipeline.commands import next as next_round
from histo_monai.pipeline.commands.next import ROUNDS, _remembered, _summary
from histo_monai.reports.labeling.answers import Answers
from histo_monai.utils.errors import InputError
from histo_monai.wsi.typical import similar_groups
from tests.hostile.project import OWN, STAGES, params_with, write_own_project, write_text

SUGGESTIONS = Path("data/suggestions")
SECOND = SUGGESTIONS / "random-0-paper-0"


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """A project of slides without labels; calls of DVC, whose stages run in this process."""
    monkeypatch.chdir(tmp_path)
    write_own_project()
    params_with(labels__own__validation="labeled")()
    (OWN / "patches.csv").unlink()
    slides = pd.read_csv(OWN / "slides.csv").drop(columns=["label", "split"])
    slides.to_csv(OWN / "slides.csv", index=False)
    calls: list[tuple[str, ...]] = []

    def here(module: str, arguments: Sequence[str], _: object) -> int:
        if module == "histo_monai":
            return main(arguments)
        calls.append(tuple(arguments))
        if arguments[0] != "repro":
            return 0
        names = [stage[0] for stage in STAGES]
        last = names.index(arguments[1]) if len(arguments) > 1 else len(STAGES)
        return max(main(stage) for stage in STAGES[: last + 1])

    monkeypatch.setattr(dvc, "run_module", here)
    monkeypatch.setattr(next_round, "warm_process", lambda: contextlib.nullcontext({}))
    return calls


def squares_of(folder: Path) -> list[dict[str, object]]:
    table = pd.read_csv(folder / "suggestions.csv", dtype={"slide_id": str})
    return [
        {**{name: row[name] for name in ("slide_id", "y", "x", "mpp")}, "side_px": row["patch_px"]}
        for row in table.to_dict("records")
    ]


def answer(folder: Path, answers: Sequence[str]) -> None:
    """Answers of a page, as `label --serve` saves them; "" is an artefact."""
    squares = squares_of(folder)
    (page,) = SUGGESTIONS.glob(f"{folder.name}-*.html")
    given = Answers(page.with_suffix(".answers.csv"), squares)
    for number, label in enumerate(answers):
        kind = "label" if label else "artefact"
        given.reply(json.dumps({"known": number, "numbers": [number], "kind": kind, "label": label}).encode())


def places(folder: Path) -> set[tuple[object, ...]]:
    return {tuple(square.values()) for square in squares_of(folder)}


@pytest.mark.slow
@pytest.mark.usefixtures("small_forests")
def test_from_no_label_to_the_page_of_the_second_round(
    called: list[tuple[str, ...]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = ("next", "--classes", "tumor", "normal", "--num", "12", "--random", "3")
    assert main(call) == 0
    assert called == [("repro", "pretrain")]
    out = capsys.readouterr().out
    assert "round 0: 0 labels" in out
    assert "histo-monai label data/suggestions/first --serve --classes tumor normal;" in out
    (page,) = SUGGESTIONS.glob("first-*.html")
    assert '"classes":["tumor","normal"]' in page.read_text()

    answer(SUGGESTIONS / "first", [*["tumor", "normal"] * 5, "", ""])
    with monkeypatch.context() as patch:
        patch.setattr(dvc, "run_module", lambda *_: 1)  # the disk is full, or someone pressed Ctrl-C
        assert main(call) == 1
    assert "run `histo-monai next` again" in capsys.readouterr().err
    assert len(pd.read_csv(OWN / "patches.csv")) == 10

    called.clear()
    assert main(call) == 0
    assert called == [("repro", "pretrain"), ("repro", "consistency"), ("repro",)]
    lines = capsys.readouterr().out.splitlines()
    predictions = pd.read_csv("data/evaluation/random-0-paper-0/predictions.csv")
    kind = json.loads(Path("data/models/chosen/chosen.json").read_text())["kind"]
    table = predictions[predictions["split"] == "validation"]
    value = np.mean(
        [
            (table[f"{kind}_{name}"] > 0.5)[table["label"] == name].mean() for name in ("normal", "tumor")
        ]  # recall of each class
    )
    wanted = (
        f"round 1: 10 labels to learn from, 0 to test on; cross-validation balanced accuracy {value:.2f} ("
    )
    assert any(line.startswith(wanted) for line in lines), lines
    assert "labels added since the round before: 10" in lines
    assert "regions to label now: 12, 3 at random" in lines
    suggested = pd.read_csv(SECOND / "suggestions.csv")
    assert suggested["chosen_by"].value_counts().to_dict() == {"model": 9, "random": 3}
    assert set(suggested["cluster"]) == {1, 2, 3}
    assert not places(SECOND) & places(SUGGESTIONS / "first")  # neither labels nor artefacts again

    rounds = pd.read_csv(SUGGESTIONS / "rounds.csv")
    assert rounds["labels"].tolist() == [0, 10]
    assert Path(rounds["page"].iloc[-1]).is_file()
    before = places(SECOND)
    run_module = dvc.run_module
    with monkeypatch.context() as patch:  # the maps fail: the page is there
        patch.setattr(dvc, "run_module", lambda *call: int(call[1] == ("repro",)) or run_module(*call))
        assert main(call) == 1
    printed = capsys.readouterr()
    assert "label them: histo-monai label" in printed.out
    assert "dvc repro: failed" in printed.err
    assert pd.read_csv(SUGGESTIONS / "rounds.csv")["labels"].tolist() == [
        0,
        10,
    ]  # nothing new: the same round
    assert places(SECOND) == before


def test_data_under_dvc_is_added_again_before_the_pipeline_runs(
    called: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    OWN.with_suffix(".dvc").write_text("outs:\n- path: own\n")
    monkeypatch.setattr(dvc, "run_module", lambda _, arguments, __: called.append(tuple(arguments)) or 1)
    assert main(("next",)) == 1
    assert called == [("add", "data/raw/own")]


@pytest.mark.parametrize("num_random", ["12", "-1"])
def test_a_page_is_neither_all_random_nor_less_than_none(
    called: list[tuple[str, ...]], num_random: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(("next", "--num", "12", "--random", num_random)) == 1
    assert "Fix: give 0 to 11" in capsys.readouterr().err
    assert called == []


@pytest.mark.usefixtures("called")
def test_another_dataset_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    params_with(dataset="camelyon16")()
    assert main(("next",)) == 1
    assert "is not data/raw/own. Fix: " in capsys.readouterr().err


def test_labels_of_one_class_are_added_and_run_nothing(
    called: list[tuple[str, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    head = "slide_id,y,x,mpp,side_px,label,answer"
    write_text("answers.csv", f"{head}\ns1,256,256,1.0,32,tumor,label\ns2,256,256,1.0,32,tumor,label\n")
    assert main(("next", "--read", "answers.csv")) == 1
    assert "all labels are 'tumor'" in capsys.readouterr().err
    assert len(pd.read_csv(OWN / "patches.csv")) == 2
    assert called == []  # `index` would refuse them, and leave no table for `suggest --first`


@pytest.mark.usefixtures("called")
def test_of_several_encoders_the_first_chooses_typical_tissue(monkeypatch: pytest.MonkeyPatch) -> None:
    params_with(pretraining_seeds=[1, 0])()
    asked: list[tuple[str, ...]] = []

    def here(module: str, arguments: Sequence[str], _: object) -> int:
        if module == "dvc":
            return main(("index",))
        asked.append(tuple(arguments))
        return 1

    monkeypatch.setattr(dvc, "run_module", here)
    assert main(("next",)) == 1
    assert asked == [("suggest", "--method", "random", "--pretraining-seed", "1", "--first", "--num", "30")]


def test_scores_are_refused_before_anything_runs(
    called: list[tuple[str, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    write_text(OWN / "patches.csv", "slide_id,y,x,mpp,side_px,score\ns1,256,256,1.0,32,0.5\n")
    assert main(("next",)) == 1
    error = capsys.readouterr().err
    assert "has scores" in error
    assert "--into" not in error  # `next` has no such option
    assert called == []


def test_rounds_have_numbers_of_their_own_and_one_patient_has_no_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ROUNDS.parent.mkdir(parents=True)
    quality = {"split": "test", "balanced_accuracy": 0.5, "low": np.nan, "high": np.nan, "num_units": 1}
    about = {"regions": 2, "random_regions": 0, "page": "p.html", "model": "m", "unit": "patients", **quality}
    for num in (0, 2, 4, 2):  # the last two labels were taken back
        rounds = _remembered(pd.DataFrame({"split": ["train"] * num}), dict(about))
    assert rounds["labels"].tolist() == [0, 4, 2]
    assert rounds["round"].tolist() == [0, 2, 3]
    assert "balanced accuracy 0.50 (no interval, 1 patients)" in _summary(rounds)


@pytest.mark.parametrize("content", ["", "round,labels\n0,1\n", "\0", "{head}\n0,many,0,,,,,,,,,,\n"])
def test_another_table_of_rounds_is_one_line(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ROUNDS.parent.mkdir(parents=True)
    _remembered(pd.DataFrame({"split": []}), {})
    head = ROUNDS.read_text().splitlines()[0]
    ROUNDS.write_text(content.replace("{head}", head))
    with pytest.raises(InputError, match=r"rounds\.csv: .* Fix: move it away"):
        _remembered(pd.DataFrame({"split": ["train"]}), {})


def test_groups_are_what_lies_together() -> None:
    random = np.random.default_rng(0)
    kind = np.repeat([0, 1, 2], 5)
    kind = kind[np.argsort(random.random(15))]
    centers = 20 * random.normal(0, 1, (3, 8))
    groups = similar_groups(centers[kind] + random.normal(0, 1, (15, 8)))
    first = [groups[np.flatnonzero(kind == k)[0]] for k in kind]
    assert groups.tolist() == first
    assert list(dict.fromkeys(groups.tolist())) == [1, 2, 3]  # numbered by their first member
    assert similar_groups(np.ones((1, 8))).tolist() == [1]
    assert len(similar_groups(np.ones((9, 8)))) == 9
