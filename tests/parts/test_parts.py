"""Methods in files of the project and an encoder, in a run of all stages: nothing of the package is edited."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import safetensors.numpy
import yaml

from histo_monai.models.encoders.architectures import ENCODERS
from histo_monai.pipeline.cli import main
from histo_monai.pipeline.params import ParamsError, load_params
from histo_monai.utils.storage import file_sha256
from tests.hostile.project import OWN, PARAMS, SPLITS, set_dotted, write_slide
from tests.parts.toy_encoder import NUM_FEATURES, TOY_ENCODER

STUDENTS = ("toy", "paper", "adamatch")
STEPS = {"epochs": 2, "steps_per_epoch": 2, "batch_size": 4}
METHOD = ("--method", "quarters")
RUN = (*METHOD, "--seed", "0")
PRETEXT = {"epochs": 2, "batch_size": 4, "lr": 0.01}
FILES = {
    "toy_pretext.py": "own_methods/pretraining/quarters.py",
    "toy_student.py": "own_methods/semisupervised/toy.py",
}


@pytest.fixture
def project(root: Path, own_project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Seven slides with labels, files of the toys, and params that name them."""
    for name, value in (("DEVICE", "cpu"), ("CPUS", "1"), ("WORKERS", "0")):
        monkeypatch.setenv(f"HISTO_MONAI_{name}", value)
    for toy, name in FILES.items():
        Path(name).parent.mkdir(parents=True)
        shutil.copy(root / "tests/parts" / toy, name)
    monkeypatch.setitem(ENCODERS, "toy", TOY_ENCODER)
    tree = yaml.safe_load((root / "params.yaml").read_text())
    for dotted, value in PARAMS.items():
        set_dotted(tree, dotted, value)
    tree["encoder"]["name"] = "toy"
    tree["semisupervised_methods"] = list(STUDENTS)
    tree["consistency"]["methods"]["toy"] = {"decay": 0.5}
    tree["consistency"]["recipe"] |= STEPS
    tree["finetune"]["recipe"] = tree["consistency"]["recipe"] | {
        "select_depth": True,  # of an encoder without stages
        "linear_init": True,
    }
    del tree["finetune"]["recipe"]["match_class_proportions"]  # of students alone
    tree |= {
        "pretraining_methods": ["quarters"],
        "slide_level": {
            "pretraining_methods": ["quarters"],
            "semisupervised_methods": list(STUDENTS),
            "num_encoders": None,
        },
        "pretrain": tree["pretrain"] | {"quarters": PRETEXT},
    }
    Path("params.yaml").write_text(yaml.safe_dump(tree))
    slides, patches = ["slide_id,path,patient_id,label,split"], ["slide_id,y,x,mpp,label"]
    for number, split in enumerate(SPLITS):
        write_slide(OWN / f"s{number}.tif", seed=number)
        slides.append(f"s{number},s{number}.tif,P{number},{('tumor', 'normal')[number % 2]},{split}")
        patches += [
            f"s{number},{100 + 60 * i},250,1,{label}" for i, label in enumerate(("tumor", "normal") * 2)
        ]
    (OWN / "slides.csv").write_text("\n".join(slides) + "\n")
    (OWN / "patches.csv").write_text("\n".join(patches) + "\n")
    return own_project


@pytest.mark.slow
@pytest.mark.usefixtures("small_forests")
def test_a_toy_pretext_student_and_encoder_go_through_all_stages(project: Path) -> None:
    stages = [("index",), ("pretrain", *METHOD), ("finetune", *RUN)]
    stages += [
        (name, *RUN, "--student", student)
        for student in STUDENTS
        for name in ("consistency", "evaluate", "heatmap", "aggregate")
    ]
    stages += [("features", *METHOD), ("mil", *RUN)]
    for call in (*stages, ("compare",)):
        assert main(call) == 0, call
    encoder = json.loads(Path("data/models/quarters-0/encoder.json").read_text())
    assert (encoder["method"], encoder["params"]["quarters"]) == ("quarters", PRETEXT)
    assert encoder["mpps"] == [4.0]
    for folder, name in (
        ("quarters-0", FILES["toy_pretext.py"]),
        ("quarters-0-toy-0/student", FILES["toy_student.py"]),
    ):
        record = json.loads(Path(f"data/models/{folder}/metrics.json").read_text())["provenance"]
        assert record["inputs"][name] == file_sha256(Path(name))
    assert encoder["provenance"]["inputs"][FILES["toy_pretext.py"]] == file_sha256(
        Path(FILES["toy_pretext.py"])
    )
    pretraining = pd.read_csv("data/models/quarters-0/curves.csv")
    assert list(pretraining["epoch"]) == [1, 2]
    assert pretraining["train_loss"].nunique() == 2  # it trains
    folders = {name: Path(f"data/models/quarters-0-{name}-0/student") for name in STUDENTS}
    description = json.loads((folders["toy"] / "model.json").read_text())
    assert description["encoder"]["name"] == "toy"
    assert description["encoder"]["num_features"] == NUM_FEATURES
    assert description["semisupervised"] == {"method": "toy", "decay": 0.5}
    before, after, papers, adamatch = (
        safetensors.numpy.load_file(folder / "model.safetensors")
        for folder in (Path("data/models/quarters-0-0/finetuned"), *folders.values())
    )
    assert before.keys() == after.keys() == papers.keys()
    trunk = [name for name in before if name.endswith("trunk.0.weight")]
    assert all((before[name] != after[name]).any() for name in trunk)
    assert all((before[name] == papers[name]).all() for name in trunk)
    assert all((before[name] != adamatch[name]).any() for name in trunk)
    finetuned = json.loads(Path("data/models/quarters-0-0/finetuned/model.json").read_text())
    assert finetuned["params"]["linear_init"] is True
    by_recipe = json.loads((folders["adamatch"] / "model.json").read_text())
    assert by_recipe["params"]["strong"]["num"] == 3
    assert by_recipe["semisupervised"] == {"method": "adamatch", "weight": 1.0, "threshold": 0.9}
    assert list(pd.read_csv(folders["adamatch"] / "curves.csv")["epoch"]) == [1, 2]
    curves = pd.read_csv(folders["toy"] / "curves.csv")
    assert {"train_loss", "train_supervised", "train_distance", "validation_loss"} <= set(curves.columns)
    table = pd.read_csv("data/comparison/table.csv", keep_default_na=False).query("split == 'test'")
    assert table["training"].unique().tolist() == [
        *("finetune", *STUDENTS, "", "linear", "knn"),
        *(f"{student}+color" for student in STUDENTS),
    ]
    assert "quarters + toy" in Path("data/comparison/report.md").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("semisupervised_methods", ["toi"]), "diagnoses, toy, got 'toi'; did you mean 'toy'?"),
        (("methods", {"toi": {"decay": 0.5}}), "consistency.methods.toi: unknown key; did you mean 'toy'?"),
        (
            ("methods", {"toy": {"decay": 2.0}}),
            "consistency.methods.toy.decay: expected a number in [0, 1], got 2.0",
        ),
        (("methods", {"toy": {}}), "consistency.methods.toy.decay: missing key"),
        (
            ("methods", {}),
            "consistency.methods.toy: missing key. Fix: add its settings, or remove it from `semisupervised_methods`",
        ),
    ],
)
def test_settings_of_a_part_are_checked_as_all_params_are(
    project: Path, change: tuple[str, object], message: str
) -> None:
    tree = yaml.safe_load(Path("params.yaml").read_text())
    key, value = change
    (tree if key == "semisupervised_methods" else tree["consistency"])[key] = value
    Path("params.yaml").write_text(yaml.safe_dump(tree))
    with pytest.raises(ParamsError) as caught:
        load_params(Path("params.yaml"))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (PRETEXT | {"lr": 0}, "pretrain.quarters.lr: expected a number in (0, inf), got 0.0"),
        ({}, "pretrain.quarters.epochs: missing key; expected an integer"),
        (None, "pretrain.quarters: expected a section with keys, got nothing"),
    ],
)
def test_settings_of_a_pretext_from_outside_are_checked_as_all_params_are(
    project: Path, section: object, message: str
) -> None:
    tree = yaml.safe_load(Path("params.yaml").read_text())
    tree["pretrain"]["quarters"] = section
    Path("params.yaml").write_text(yaml.safe_dump(tree))
    with pytest.raises(ParamsError) as caught:
        load_params(Path("params.yaml"))
    assert message in str(caught.value)
