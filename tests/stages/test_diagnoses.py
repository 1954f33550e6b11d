"""Student `diagnoses`: labels of training slides teach a head, and no held-out patient's label is read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from histo_monai.models.checkpoint import load_model
from histo_monai.pipeline.cli import main
from histo_monai.pipeline.paths import UNLABELED_CSV, WHOLE_SLIDES_CSV
from tests.folders import NewFolder, work_in_copy
from tests.hostile.project import OWN, STAGES, params_with, slide_pixels, write_own_project, write_slide

pytestmark = pytest.mark.slow

RUN = ("--method", "random", "--student", "diagnoses", "--seed", "0")
FINETUNED = Path("data/models/random-0-0/finetuned")
STUDENT = Path("data/models/random-0-diagnoses-0/student")
NUM_SLIDES, LABELED, TESTED = 12, (0, 1, 2, 3), (10, 11)


def _write_slides() -> None:
    """Every other slide has tumor, which is blue, in its right third; four slides and two test slides have patches."""
    slides, patches = ["slide_id,path,patient_id,label,split"], ["slide_id,y,x,mpp,label,split"]
    for i in range(NUM_SLIDES):
        pixels, split = slide_pixels(i), "test" if i in TESTED else "train"
        if i % 2:
            pixels[32:-32, 320:-32] = pixels[32:-32, 320:-32] // np.array([2, 1, 1], np.uint8)
        write_slide(OWN / f"s{i}.tif", pixels=pixels)
        of_slide = (
            "validation" if i == NUM_SLIDES - 3 else split
        )  # of the pretraining; labels select in folds
        slides.append(f"s{i},s{i}.tif,P{i},{('normal', 'tumor')[i % 2]},{of_slide}")
        if i in (*LABELED, *TESTED):
            squares = [(y, x, "normal") for y in (120, 240) for x in (120, 200)]
            squares += [(y, 400, "tumor") for y in (120, 240)] if i % 2 else []
            patches += [f"s{i},{y},{x},1,{label},{split}" for y, x, label in squares]
    (OWN / "slides.csv").write_text("\n".join(slides) + "\n")
    (OWN / "patches.csv").write_text("\n".join(patches) + "\n")


@pytest.fixture(scope="module")
def taught(module_folder: NewFolder) -> Path:
    """Own slides, a random encoder, its features, the fine-tuned head and its student."""
    folder = module_folder("diagnoses")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_own_project()
        _write_slides()
        params_with(
            encoder__name="resnet18",
            finetune__mode="head",
            semisupervised_methods=["diagnoses"],
            slide_level__semisupervised_methods=["diagnoses"],
            labels__own__unlabeled=200,
            labels__own__validation="labeled",
        )()
        of_encoder = ("features", "--method", "random")
        for call in (*STAGES[:2], of_encoder, ("finetune", *RUN[:2], *RUN[4:]), ("consistency", *RUN)):
            assert main(call) == 0
    return folder


@pytest.fixture
def project(taught: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A copy of the project with its heads."""
    work_in_copy(taught, tmp_path, monkeypatch)
    return


def _turn(*names: str) -> None:
    """Turn the diagnoses of some slides."""
    slides = pd.read_csv(WHOLE_SLIDES_CSV, dtype=str, keep_default_na=False).set_index("slide_id", drop=False)
    slides.loc[list(names), "label"] = slides.loc[list(names), "label"].map(
        {"tumor": "normal", "normal": "tumor"}
    )
    slides.to_csv(WHOLE_SLIDES_CSV, index=False)


def _tensors() -> dict[str, dict[str, np.ndarray]]:
    return {path.name: load_file(path) for path in sorted(STUDENT.rglob("*.safetensors"))}


def _equal(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    return all(first[name].tobytes() == second[name].tobytes() for name in first)


@pytest.mark.usefixtures("project")
def test_the_students_head_uses_the_diagnoses_and_counts_them() -> None:
    description = load_model(STUDENT / "model.safetensors")[1]
    (part,) = description["selection"]["parts"]
    assert part["head"] == "diagnoses"
    drawn = pd.read_csv(UNLABELED_CSV)
    assert description["pseudo_labels"] == {"number": len(drawn), "accepted": True}
    metrics = json.loads((STUDENT / "metrics.json").read_text())
    assert metrics["num_labels"] == 4 * 4 + 2 * 2
    assert metrics["num_diagnoses"] == drawn["slide_id"].nunique() == NUM_SLIDES - len(TESTED)
    assert str(WHOLE_SLIDES_CSV) in metrics["provenance"]["inputs"]
    assert "num_diagnoses" not in json.loads((FINETUNED / "metrics.json").read_text())
    assert main(("evaluate", *RUN)) == 0
    table = pd.read_csv("data/evaluation/random-0-diagnoses-0/predictions.csv")
    tested = table[table["split"] == "test"]
    assert ((tested["student_tumor"] > 0.5) == (tested["label"] == "tumor")).all()


@pytest.mark.usefixtures("project")
def test_every_diagnosed_patient_is_in_a_fold_so_that_no_map_is_of_a_model_that_read_its_diagnosis() -> None:
    own, finetuned = (
        pd.read_csv(folder / "folds/folds.csv").set_index("patient")["fold"]
        for folder in (STUDENT, FINETUNED)
    )
    assert set(finetuned.index) == {f"patient P{i}" for i in LABELED}
    assert set(own.index) == {f"patient P{i}" for i in range(NUM_SLIDES) if i not in TESTED}
    assert (own[finetuned.index] == finetuned).all()
    before = _tensors()
    for fold in sorted(own.unique()):
        held_out = [name.split(" P")[1] for name in finetuned.index[finetuned == fold]]
        _turn(*(f"s{number}" for number in held_out))
        assert main(("consistency", *RUN)) == 0
        after = _tensors()
        assert [name for name in before if _equal(before[name], after[name])] == [
            f"without-{fold}.safetensors"
        ]
        _turn(*(f"s{number}" for number in held_out))


@pytest.mark.usefixtures("project")
def test_diagnoses_of_test_slides_change_nothing() -> None:
    before = _tensors()
    _turn(*(f"s{number}" for number in TESTED))
    assert main(("consistency", *RUN)) == 0
    after = _tensors()
    assert len(before) > 2
    assert all(_equal(before[name], after[name]) for name in before)


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("turned", "positive", "words"),
    [
        ([1, 3, 5, 7, 9], "tumor", ("0 training slides", "label slides of both kinds")),
        ([], "cancer", ("'cancer'", "heatmap.own.positive_class")),
    ],
)
def test_what_does_not_fit_is_one_line(
    turned: list[int], positive: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    _turn(*(f"s{number}" for number in turned))
    params_with(heatmap__own__positive_class=positive)()
    capsys.readouterr()
    assert main(("consistency", *RUN)) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert all(word in line for word in words), line


@pytest.mark.usefixtures("project")
def test_maps_refuse_a_student_that_learned_from_diagnoses_of_another_class(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its stage does not depend on the section of maps that names the class."""
    params_with(heatmap__own__positive_class="normal")()
    assert main(("heatmap", *RUN)) == 1
    error = capsys.readouterr().err
    assert "learned from diagnoses of 'tumor', but heatmap.own.positive_class is 'normal'" in error
    assert main(("consistency", *RUN)) == 0
    assert main(("heatmap", *RUN)) == 0
