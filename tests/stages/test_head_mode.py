"""Mode `head` of the fine-tuning: heads on stored features are models like any other, and encode no patch."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from PIL import Image

from histo_monai.data.loaders.reader import PatchReader
from histo_monai.data.tables.patches import read_patches
from histo_monai.data.tables.predictions import read_predictions
from histo_monai.models.checkpoint import load_model, save_model
from histo_monai.models.encoder import Encoder
from histo_monai.models.task_model import from_task_model
from histo_monai.pipeline.cli import main
from histo_monai.pipeline.commands.label import write_page
from histo_monai.pipeline.paths import Run
from histo_monai.pipeline.stages import report
from histo_monai.pipeline.suggestions.merging import answer_files, merge_labels
from histo_monai.reports.labeling.answers import Answers
from histo_monai.reports.site.blocks import Pictures
from histo_monai.reports.site.doubtful import NUM_PICTURES
from histo_monai.semisupervised import METHODS
from histo_monai.semisupervised.settings import SupervisedSettings
from histo_monai.semisupervised.supervised import Supervised
from histo_monai.utils.errors import InputError
from histo_monai.utils.settings.registry import Part
from tests.folders import NewFolder, work_in_copy
from tests.hostile.project import OWN, STAGES, params_with, with_cell, write_own_project

pytestmark = pytest.mark.slow

STUDENTS = ("supervised", "self_training")
RUN = ("--method", "random", "--student", "supervised", "--seed", "0")
MODEL = Path("data/models/random-0-0/finetuned/model.safetensors")


def _refuse(self: Encoder, patches: torch.Tensor) -> torch.Tensor:
    raise AssertionError("a patch is encoded")


def _calls(student: str) -> list[tuple[str, ...]]:
    of_student = ("--method", "random", "--student", student, "--seed", "0")
    return [("consistency", *of_student), ("evaluate", *of_student)]


@pytest.fixture(scope="module")
def fitted(module_folder: NewFolder) -> tuple[Path, list[int]]:
    """Own slides, a random encoder, its features and all heads; and how many patches the heads encoded."""
    folder = module_folder("heads")
    counts: list[int] = []
    forward = Encoder.forward

    def counted(self: Encoder, patches: torch.Tensor) -> torch.Tensor:
        counts.append(len(patches))
        return forward(self, patches)

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_own_project()
        params_with(
            encoder__name="resnet18",  # timm's widths take a forward pass, which is counted here
            finetune__mode="head",
            semisupervised_methods=list(STUDENTS),
            slide_level__semisupervised_methods=list(STUDENTS),
            labels__own__unlabeled=30,
            alpha=0.75,
        )()
        for call in (*STAGES[:2], ("features", "--method", "random")):
            assert main(call) == 0
        patch.setattr(Encoder, "forward", counted)
        assert main(("finetune", "--method", "random", "--seed", "0")) == 0
        for student in STUDENTS:
            for call in _calls(student):
                assert main(call) == 0
    return folder, counts


@pytest.fixture
def project(
    fitted: tuple[Path, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """A copy of the project with its heads."""
    work_in_copy(fitted[0], tmp_path, monkeypatch)
    return


def test_no_patch_is_encoded(fitted: tuple[Path, list[int]]) -> None:
    assert fitted[1] == []


@pytest.mark.usefixtures("project")
def test_the_network_predicts_what_the_table_states() -> None:
    rows = read_patches(Path("data/index/patches.csv"))
    predictions = pd.read_csv("data/evaluation/random-0-supervised-0/predictions.csv")
    tested = predictions[predictions["split"] == "test"].set_index("patch_id")
    rows = rows[rows["patch_id"].isin(tested.index)].reset_index(drop=True)
    model, description = from_task_model(MODEL)
    pixels = torch.from_numpy(
        PatchReader(rows, patch_px=32, max_open_slides=4).read(np.arange(len(rows)))
    ).float()
    with torch.inference_mode():
        probabilities = model.eval()(pixels / 255).softmax(dim=1).numpy()
    columns = [f"finetuned_{name}" for name in description["classes"]]
    np.testing.assert_allclose(probabilities, tested.loc[rows["patch_id"], columns], atol=0.01)


@pytest.mark.usefixtures("project")
def test_a_model_of_a_fold_predicts_the_patches_that_it_did_not_learn_from() -> None:
    folder = MODEL.parent / "folds"
    models = sorted(folder.glob("without-*.safetensors"))
    folds, out_of_fold = pd.read_csv(folder / "folds.csv"), pd.read_csv(folder / "predictions.csv")
    assert len(models) == folds["fold"].nunique() > 1
    rows = (
        read_patches(Path("data/index/patches.csv"))
        .set_index("patch_id")
        .loc[out_of_fold["patch_id"]]
        .reset_index()
    )
    fold_of = ("patient " + rows["patient_id"]).map(folds.set_index("patient")["fold"])
    for number, path in enumerate(models):
        held_out = rows[fold_of == number].reset_index(drop=True)
        assert len(held_out) > 0
        model, _ = from_task_model(path)
        pixels = PatchReader(held_out, patch_px=32, max_open_slides=4).read(np.arange(len(held_out)))
        with torch.inference_mode():
            probabilities = model.eval()(torch.from_numpy(pixels).float() / 255).softmax(dim=1).numpy()
        table = out_of_fold.set_index("patch_id").loc[
            held_out["patch_id"], ["finetuned_normal", "finetuned_tumor"]
        ]
        np.testing.assert_allclose(probabilities, table, atol=0.01)


@pytest.mark.usefixtures("project")
def test_the_description_states_the_heads_and_whether_pseudo_labels_helped() -> None:
    description = load_model(MODEL)[1]
    parts = description["selection"]["parts"]
    assert {part["head"] for part in parts} == {"class_means", "logistic", "neighbors", "discriminant"}
    assert sum(part["weight"] for part in parts) == pytest.approx(1)
    student = Path("data/models/random-0-self_training-0/student")
    pseudo_labels = load_model(student / "model.safetensors")[1]["pseudo_labels"]
    metrics = json.loads((student / "metrics.json").read_text())
    assert pseudo_labels["accepted"] == (metrics["interpolation_weight"] == 0)


@pytest.mark.usefixtures("project")
def test_a_head_maps_slides_from_features_as_the_network_does(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Encoder, "forward", _refuse)
        assert main(("heatmap", *RUN)) == 0
    scores = pd.read_csv("data/heatmaps/random-0-supervised-0/scores/s6.csv")
    assert main(("map", "data/raw/own/s6.tif", "--model", str(MODEL), "--output", "maps")) == 0
    mapped = pd.read_csv("maps/s6.map.csv")
    cells = ["row", "column", "y", "x"]
    pd.testing.assert_frame_equal(scores[cells], mapped[cells])
    np.testing.assert_allclose(scores["finetuned"], mapped["model"], atol=0.01)
    assert scores["finetuned"].nunique() > 1
    np.testing.assert_allclose(scores["finetuned_distance"], mapped["model_distance"], rtol=0.02, atol=0.02)
    assert scores["finetuned_distance"].nunique() > 1


@pytest.mark.usefixtures("project")
def test_slides_and_maps_state_what_is_unlike_the_labeled_patches_of_other_patients() -> None:
    assert main(("heatmap", *RUN)) == 0
    maps = Path("data/heatmaps/random-0-supervised-0")
    slides = pd.read_csv(maps / "slides.csv").set_index("slide_id")
    for slide_id, row in slides.iterrows():
        scores = pd.read_csv(maps / f"scores/{slide_id}.csv")
        for model in ("finetuned", "student"):
            is_unlike = scores[f"{model}_distance"] > 1
            fraction = scores["tissue"][is_unlike].sum() / scores["tissue"].sum()
            assert row[f"unlike_training_{model}"] == pytest.approx(fraction, abs=1e-3)
            assert (maps / model / f"{slide_id}.distance.tif").is_file()
    mostly = slides.filter(like="unlike_training").max(axis=1) > 0.5
    (line,) = json.loads((maps / "metrics.json").read_text())["warnings"] or [""]
    assert all((str(name) in line) == is_mostly for name, is_mostly in mostly.items())


@pytest.mark.usefixtures("project")
def test_a_model_of_a_fold_holds_no_labeled_patch_of_it() -> None:
    folder = MODEL.parent / "folds"
    folds, labeled = pd.read_csv(folder / "folds.csv"), pd.read_csv(folder / "predictions.csv")
    fold_of = ("patient " + labeled["patient_id"]).map(folds.set_index("patient")["fold"])
    every = load_model(MODEL)[0]["reference.rows"]
    assert len(every) == len(labeled)
    for number, path in enumerate(sorted(folder.glob("without-*.safetensors"))):
        rows = load_model(path)[0]["reference.rows"]
        assert len(rows) == (fold_of != number).sum() < len(labeled)


@pytest.mark.usefixtures("project")
def test_a_map_of_other_cells_encodes_them() -> None:
    params_with(heatmap__own__stride_um=16.0)()
    assert main(("heatmap", *RUN)) == 0
    fine = pd.read_csv("data/heatmaps/random-0-supervised-0/scores/s6.csv")
    params_with(heatmap__own__stride_um=32.0)()
    assert main(("heatmap", *RUN)) == 0
    assert len(fine) > 2 * len(pd.read_csv("data/heatmaps/random-0-supervised-0/scores/s6.csv"))


@pytest.mark.usefixtures("project")
def test_a_map_at_another_resolution_than_the_features_encodes_its_patches() -> None:
    params_with(corpora__own__mpps=[2.0, 4.0, 8.0], features__mpp=2.0)()
    assert main(("features", "--method", "random")) == 0
    assert (
        main(("finetune", *RUN[:2], *RUN[4:])) == main(("consistency", *RUN)) == main(("heatmap", *RUN)) == 0
    )


@pytest.mark.usefixtures("project")
def test_features_of_another_encoder_or_slide_are_not_mapped(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path("data/features/random-0")
    shutil.copy(folder / "s5.h5", folder / "s6.h5")
    assert main(("heatmap", *RUN)) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
    assert "s6.h5" in line
    assert "run the features stage" in line


@pytest.mark.usefixtures("project")
def test_a_model_of_a_fold_is_its_head_beside_the_model_with_the_encoder() -> None:
    (path, *_) = sorted((MODEL.parent / "folds").glob("without-*.safetensors"))
    held = load_model(path)[0]
    assert held
    assert all(name.startswith(("head.", "reference.")) for name in held)
    of_fold, whole = from_task_model(path)[0].state_dict(), from_task_model(MODEL)[0].state_dict()
    assert of_fold.keys() >= whole.keys() - held.keys()
    assert all(torch.equal(of_fold[name], whole[name]) for name in whole if name.startswith("encoder."))
    state, description = load_model(MODEL)
    save_model(MODEL, {name: tensor + 1 for name, tensor in state.items()}, description)
    with pytest.raises(InputError, match=path.name):
        from_task_model(path)


@pytest.mark.usefixtures("project")
def test_a_head_is_exported(tmp_path: Path) -> None:
    assert main(("export", str(MODEL), "--onnx", str(tmp_path / "head.onnx"))) == 0
    assert main(("export", str(MODEL), "--bundle", str(tmp_path / "bundle"))) == 0
    assert main(("import", str(tmp_path / "bundle"), "--output", str(tmp_path / "imported"))) == 0
    patches = torch.rand(3, 3, 32, 32)
    model, _ = from_task_model(MODEL)
    again, _ = from_task_model(tmp_path / "imported/model.safetensors")
    with torch.inference_mode():
        expected = model.eval()(patches)
        torch.testing.assert_close(again.eval()(patches), expected)
    session = onnxruntime.InferenceSession(tmp_path / "head.onnx")
    (found,) = session.run(None, {session.get_inputs()[0].name: patches.numpy()})
    np.testing.assert_allclose(found, expected.softmax(dim=1), atol=1e-4)


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("changes", "stage", "words"),
    [
        ({"semisupervised_methods": ["fixmatch"]}, "finetune", ("fixmatch", "self_training")),
        ({"finetune__mode": "all"}, "finetune", ("self_training", "spatial_neighbors")),
        ({"finetune__mode": "heads"}, "finetune", ("finetune.mode", "heads")),
        ({"finetune__head__classes": []}, "finetune", ("finetune.head.classes",)),
        ({"features__depth": 1}, "finetune", ("depth", "features")),
    ],
)
def test_what_does_not_fit_is_one_line(
    changes: dict[str, object], stage: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    params_with(**changes)()
    assert main((stage, "--method", "random", "--seed", "0")) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert all(word in line for word in words), line


@pytest.mark.usefixtures("project")
def test_without_features_no_head_is_fitted(capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree("data/features/random-0")
    assert main(("finetune", "--method", "random", "--seed", "0")) == 1
    assert "run the stage features" in capsys.readouterr().err


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("key", "value"), [("parts", []), ("num_known", 3), ("unknown", -1.0), ("parts", [{"kind": "forest"}])]
)
def test_a_changed_description_is_refused(key: str, value: object) -> None:
    state, description = load_model(MODEL)
    description["mixture"][key] = value
    path = Path("changed.safetensors")
    save_model(path, state, description)
    with pytest.raises(InputError, match="mixture"):
        from_task_model(path)


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("stage", ["consistency", "evaluate"])
def test_a_head_of_other_features_is_refused(stage: str, capsys: pytest.CaptureFixture[str]) -> None:
    params_with(features__batchnorm_patches=0)()
    assert main(("features", "--method", "random")) == 0
    assert main((stage, *RUN)) == 1
    assert "run the stages finetune" in capsys.readouterr().err


@pytest.mark.usefixtures("project")
def test_a_new_label_encodes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = MODEL.read_bytes()
    monkeypatch.setattr(Encoder, "forward", _refuse)
    with_cell(Path("data/raw/own/patches.csv"), 2, "label", "tumor")()
    of_run = [(stage, *RUN) for stage in ("consistency", "evaluate", "heatmap")]
    for call in (STAGES[0], ("features", "--method", "random"), ("finetune", *RUN[:2], *RUN[4:]), *of_run):
        assert main(call) == 0
    assert MODEL.read_bytes() != before


@pytest.mark.usefixtures("project")
def test_one_process_or_three_fit_the_same_heads_and_baselines(monkeypatch: pytest.MonkeyPatch) -> None:
    student = ("--student", "self_training")
    of_run = [("finetune", *RUN[:2], *RUN[4:])]
    of_run += [(stage, *RUN[:2], *student, *RUN[4:]) for stage in ("consistency", "evaluate")]
    kinds = ("*.safetensors", "predictions.csv")
    contents = []
    for processes in ("1", "3"):
        monkeypatch.setenv("HISTO_MONAI_CPUS", processes)
        for call in of_run:
            assert main(call) == 0
        files = [path for kind in kinds for path in sorted(Path("data").rglob(kind))]
        contents.append({path: path.read_bytes() for path in files})
    assert len(contents[0]) > 6
    assert contents[0] == contents[1]


@pytest.mark.usefixtures("project")
def test_the_supervised_student_is_the_finetuned_head_and_fits_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a head is fitted")

    folder = Path("data/models/random-0-supervised-0/student")
    shutil.rmtree(folder)
    monkeypatch.setattr("histo_monai.pipeline.frozen.fit_head", refuse)
    not_there = Part("nowhere:Nothing", "histo_monai.semisupervised.settings:SupervisedSettings")
    monkeypatch.setitem(METHODS, "supervised", not_there)  # so the method's file is not imported
    assert main(("consistency", *RUN)) == 0
    with pytest.raises(AssertionError, match="fitted"):
        main(("consistency", *RUN[:2], "--student", "self_training", *RUN[4:]))
    models = sorted(path.relative_to(MODEL.parent) for path in MODEL.parent.rglob("*.safetensors"))
    assert len(models) > 1
    for name in models:
        own, finetuned = (load_model(place / name) for place in (folder, MODEL.parent))
        assert own[0].keys() == finetuned[0].keys()
        assert all(torch.equal(own[0][key], finetuned[0][key]) for key in own[0])
        assert own[1]["selection"] == finetuned[1]["selection"]
        assert own[1]["pseudo_labels"] == {"number": 0, "accepted": False}


@pytest.mark.usefixtures("project")
def test_doubtful_labels_are_ranked_by_predictions_without_the_patient_and_by_neighbors() -> None:
    folder = MODEL.parent / "folds"
    table = pd.read_csv(folder / "doubtful.csv").set_index("patch_id")
    out_of_fold = pd.read_csv(folder / "predictions.csv").set_index("patch_id").loc[table.index]
    classes = ["normal", "tumor"]
    given = out_of_fold[[f"finetuned_{name}" for name in classes]].to_numpy()
    columns = [classes.index(name) for name in table["label"]]
    np.testing.assert_allclose(table["label_probability"], given[np.arange(len(given)), columns], atol=1e-5)
    assert (table["label"] == out_of_fold["label"]).all()
    assert (table["label"] != table["other_label"]).all()
    fractions = table["neighbors_of_label"] + table["neighbors_of_other"]
    np.testing.assert_allclose(fractions, 1.0, atol=1e-5)  # two classes
    margin = table["other_probability"] - table["label_probability"]
    np.testing.assert_allclose(table["doubt"], margin + 1 - table["neighbors_of_label"], atol=1e-4)
    assert (np.diff(table["doubt"]) <= 0).all()
    near = table.loc[table["neighbor_1"]].index
    assert (near != table.index).all()


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("model", ["finetuned", "student"])
def test_a_model_states_how_often_the_sets_without_the_patient_hold_the_label(model: str) -> None:
    student = Path("data/models/random-0-self_training-0/student/model.safetensors")
    path = MODEL if model == "finetuned" else student
    stated = load_model(path)[1]["conformal"]
    table = pd.read_csv(path.parent / "folds/predictions.csv")
    scores = np.array([1 - row[f"{model}_{row['label']}"] for _, row in table.iterrows()])
    patients = table["patient_id"].to_numpy()
    names = np.unique(patients)
    assert (stated["num_labels"], stated["num_patients"]) == (len(table), len(names))
    (row,) = [row for row in stated["rates"] if row["rate"] == 0.3]
    level = np.ceil((len(table) + 1) * 0.7) / len(table)
    reached = np.mean([(scores[patients == name] <= row["threshold"] + 1e-5).mean() for name in names])
    below = np.mean([(scores[patients == name] < row["threshold"] - 1e-5).mean() for name in names])
    assert below < level <= reached + 1e-9
    assert 0 < row["coverage"] <= 1
    folds = list((path.parent / "folds").glob("without-*.safetensors"))
    assert folds
    assert all("conformal" not in load_model(fold)[1] for fold in folds)


@pytest.mark.usefixtures("project")
def test_doubtful_squares_become_a_folder_of_suggestions_with_their_labels() -> None:
    assert main(("suggest", "--doubtful", "--num", "3")) == 0
    folder = Path("data/suggestions/doubtful-random-0-0")
    suggested = pd.read_csv(folder / "suggestions.csv")
    patches = read_patches(Path("data/index/patches.csv"))
    table = pd.read_csv(MODEL.parent / "folds" / "doubtful.csv")
    expected = table.merge(patches, on=["patch_id", "slide_id", "label"])[:3]
    for name in ("slide_id", "y", "x", "mpp", "label", "other_label"):
        assert suggested[name].tolist() == expected[name].tolist()
    assert (suggested["patch_px"] == expected["side_px"]).all()
    field_um = suggested["patch_px"] * suggested["mpp"]
    np.testing.assert_allclose(suggested["side_px"] * suggested["slide_mpp"], field_um, rtol=0.01)
    outlines = [json.loads(path.read_text()) for path in folder.glob("*.geojson")]
    assert sum(len(one["features"]) for one in outlines) == 3


@pytest.mark.usefixtures("project")
def test_doubtful_labels_are_corrected_in_the_table_that_holds_them() -> None:
    before = pd.read_csv(OWN / "patches.csv")
    assert main(("suggest", "--doubtful", "--num", "3")) == 0
    folder = Path("data/suggestions/doubtful-random-0-0")
    page, squares, _ = write_page(folder, [], None, OWN / "patches.csv")
    answers = Answers(page.with_suffix(".answers.csv"), squares)
    for number, square in enumerate(squares):
        message = {"known": number, "numbers": [number], "kind": "label", "label": square["other_label"]}
        answers.reply(json.dumps(message).encode())
    for expected in ((0, 0, 0, 3), (0, 3, 0, 0)):
        assert merge_labels(answer_files(), OWN / "patches.csv") == expected
    after = pd.read_csv(OWN / "patches.csv")
    places = pd.read_csv(folder / "suggestions.csv")[["slide_id", "y", "x"]]
    changed = after[after["label"] != before["label"]]
    assert set(changed[["slide_id", "y", "x"]].itertuples(index=False, name=None)) == set(
        places.itertuples(index=False, name=None)
    )
    assert main(("index",)) == 0
    assert len(read_patches(Path("data/index/patches.csv"))) == len(after)


@pytest.mark.usefixtures("project")
def test_the_report_shows_doubtful_labels_beside_their_nearest_patches(tmp_path: Path) -> None:
    section = report._doubtful(tmp_path, Run("random", 0, 0, "supervised"))
    (pictures,) = [block for block in section.blocks if isinstance(block, Pictures)]
    patches = read_patches(Path("data/index/patches.csv")).set_index("patch_id", drop=False)
    table = pd.read_csv(MODEL.parent / "folds" / "doubtful.csv")
    assert len(pictures.pictures) == min(NUM_PICTURES, len(table))
    for number, picture in enumerate(pictures.pictures):
        rows = patches.loc[table.loc[number, ["patch_id", "neighbor_1", "neighbor_2", "neighbor_3"]]]
        expected = PatchReader(rows, patch_px=32, max_open_slides=4).read(np.arange(4))
        pixels = np.asarray(Image.open(tmp_path / picture.path))
        for column, patch in enumerate(expected):
            start = column * (32 + 4)
            assert (pixels[:, start : start + 32] == patch.transpose(1, 2, 0)).all()
        assert picture.caption.endswith(", ".join(rows["label"].iloc[1:]))


@pytest.mark.usefixtures("project")
def test_a_label_that_was_corrected_is_not_suggested_again() -> None:
    path = Path("data/index/patches.csv")
    patches = pd.read_csv(path, dtype=str, keep_default_na=False)
    first = pd.read_csv(MODEL.parent / "folds" / "doubtful.csv").iloc[0]
    is_first = patches["patch_id"] == first["patch_id"]
    patches.loc[is_first, "label"] = first["other_label"]
    patches.to_csv(path, index=False)
    assert main(("suggest", "--doubtful", "--num", "500")) == 0
    suggested = pd.read_csv("data/suggestions/doubtful-random-0-0/suggestions.csv")
    corrected = patches[is_first].iloc[0]
    places = zip(suggested["slide_id"], suggested["y"], suggested["x"], strict=True)
    assert (corrected["slide_id"], float(corrected["y"]), float(corrected["x"])) not in set(places)
    assert len(suggested) > 0


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--doubtful", "--first"), "--first"),
        (("--doubtful", "--side-um", "64"), "--side-um"),
        (("--doubtful", "--seed", "7"), "0 fine-tuned models"),
    ],
)
def test_contradicting_options_of_suggest_are_refused(
    words: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(("suggest", *words)) == 1
    assert named in capsys.readouterr().err


@pytest.mark.usefixtures("project")
def test_a_method_with_settings_of_its_own_fits_its_own_head(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(Supervised):
        @dataclasses.dataclass(frozen=True)
        class Settings(SupervisedSettings):
            pass

        @classmethod
        def fit_head(cls, *_: object) -> None:
            raise AssertionError("its own head")

    monkeypatch.setitem(METHODS, "supervised", Mine)
    shutil.rmtree("data/models/random-0-supervised-0/student")
    with pytest.raises(AssertionError, match="its own head"):
        main(("consistency", *RUN))


@pytest.mark.usefixtures("project")
def test_the_most_frequent_label_is_that_of_all_labels_also_out_of_folds() -> None:
    """Of the labels outside a fold it would be the class that the fold lacks."""
    params_with(labels__own__validation="labeled")()
    of_encoder = ("features", "--method", "random")
    finetuning = ("finetune", "--method", "random", "--seed", "0")
    for call in (STAGES[0], of_encoder, finetuning, *_calls("supervised")):
        assert main(call) == 0
    path = Path("data/evaluation/random-0-supervised-0/predictions.csv")
    out_of_folds = read_predictions(path).of_split("validation")
    proportions = out_of_folds.rows["label"].value_counts(normalize=True)[list(out_of_folds.classes or ())]
    majority = out_of_folds.predictions["majority"]
    np.testing.assert_allclose(majority, np.tile(proportions, (len(majority), 1)), atol=1e-6)
