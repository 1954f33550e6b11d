"""`next`: a round of labels in one command, from no label to the page of the second round, also after failures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from histo_monai.pipeline.cli import main
from histo_monai.pipeline.commands import dvc
from histo_monai.reports.labeling.answers import Answers
from histo_monai.wsi.typical import similar_groups
from tests.hostile.project import OWN, STAGES, params_with, write_own_project

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

    def with_stages(arguments: Sequence[str]) -> int:
        calls.append(tuple(arguments))
        if arguments[0] != "repro":
            return 0
        stages = STAGES[:2] if "pretrain" in arguments else STAGES
        return max(main(stage) for stage in stages)

    monkeypatch.setattr(dvc, "run", with_stages)
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
        patch.setattr(dvc, "run", lambda _: 1)  # the disk is full, or someone pressed Ctrl-C
        assert main(call) == 1
    assert "run `histo-monai next` again" in capsys.readouterr().err
    assert len(pd.read_csv(OWN / "patches.csv")) == 10

    called.clear()
    assert main(call) == 0
    assert called == [("repro", "pretrain"), ("repro",)]
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
    assert main(call) == 0  # nothing new: the same round
    assert pd.read_csv(SUGGESTIONS / "rounds.csv")["labels"].tolist() == [0, 10]
    assert places(SECOND) == before


def test_data_under_dvc_is_added_again_before_the_pipeline_runs(
    called: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    OWN.with_suffix(".dvc").write_text("outs:\n- path: own\n")
    monkeypatch.setattr(dvc, "run", lambda arguments: called.append(tuple(arguments)) or 1)
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
