"""The command `suggest` on a small folder of own slides, and the way of a suggestion back to a labeled patch."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tifffile
import torch
import yaml

from histo_monai.data.readers.own import reader as own
from histo_monai.models.checkpoint import save_model
from histo_monai.models.encoder import build_encoder
from histo_monai.models.task_model import TaskModel, describe_task_model
from histo_monai.pipeline.cli import main
from histo_monai.pipeline.commands import suggest
from histo_monai.pipeline.paths import Run
from histo_monai.slides.annotations import read_geojson
from histo_monai.utils.storage import file_sha256
from histo_monai.wsi.suggestion import choose_diverse
from tests.folders import NewFolder
from tests.papers_way import in_the_papers_way
from tests.slides.drawn_scn import write_scn

pytestmark = pytest.mark.slow

PATCH_PX, MPP, SIDE = 32, 0.5, 512
SLIDES = {
    "a": "train",
    "b": "train",
    "c": "validation",
    "d": "train",
    "e": "test",
    "f": "train",
    "g": "validation",
}
LABELED = {"a": "train", "c": "validation", "e": "test", "f": "validation"}
SUGGESTIONS = Path("data/suggestions/random-0-paper-0")
RUN = ["suggest", "--method", "random", "--seed", "0", "--num", "9"]


def _write_slide(path: Path, seed: int) -> None:
    """Fields of different texture, 0.5 µm/px; the right sixth is glass."""
    random = np.random.default_rng(seed)
    contrast = np.kron(random.integers(5, 60, (8, 8)), np.ones((64, 64)))[..., None]
    pixels = (190, 110, 170) + contrast * random.normal(0, 1, (SIDE, SIDE, 1))
    pixels[:, -80:] = 240
    resolution = {"resolution": (10_000 / MPP, 10_000 / MPP), "resolutionunit": "CENTIMETER"}
    tiles = {"tile": (256, 256), "photometric": "rgb"}
    tifffile.imwrite(path, pixels.clip(0, 255).astype(np.uint8), **resolution, **tiles)


def _write_models(classes: list[str] | None) -> None:
    torch.manual_seed(0)
    encoder = build_encoder().description(
        architecture="", head="pair", patch_px=PATCH_PX, mpps=[0.5, 1.0, 2.0]
    )
    encoder |= {"method": "random", "source": "raw", "corpus": "own"}
    model = TaskModel(build_encoder(), "pair", len(classes or "1"))
    for path in Run("random", 0, 0, "paper").models.values():
        with torch.no_grad():
            model.head.linear.weight *= 3
        path.parent.mkdir(parents=True)
        about = describe_task_model(encoder, classes=classes, patch_px=PATCH_PX, mpp=MPP)
        save_model(path, model.state_dict(), about)


def _project(root: Path, column: str, values: list[Any]) -> None:
    """Slides, four of them with two labels each, an index, and two models that nothing has trained."""
    folder = Path("data/raw/own")
    folder.mkdir(parents=True)
    slides = ["slide_id,path,patient_id,split"]
    patches = [f"slide_id,y,x,mpp,{column},split"]
    for seed, (name, split) in enumerate(SLIDES.items()):
        _write_slide(folder / f"{name}.tif", seed)
        slides.append(f"{name},{name}.tif,of {name},{split}")
        if name in LABELED:
            row = f"{name},{{}},40,{MPP},{{}},{LABELED[name]}"
            patches += [row.format(40 + 200 * i, value) for i, value in enumerate(values)]
    (folder / "slides.csv").write_text("\n".join(slides))
    (folder / "patches.csv").write_text("\n".join(patches))
    params = in_the_papers_way(yaml.safe_load((root / "params.yaml").read_text()))
    params |= {
        "source": "raw",
        "dataset": "own",
        "pretraining_dataset": "own",
        "patch_px": PATCH_PX,
        "alpha": 1.0,
    }
    params["corpora"]["own"] |= {"mpps": [0.5, 1.0, 2.0], "num_train": 4, "num_validation": 2}
    params["labels"]["own"]["regions"] |= {"mpp": MPP}
    params["index"] |= {"tissue_mpp": 4.0}
    Path("params.yaml").write_text(yaml.safe_dump(params))
    assert main(["index"]) == 0
    _write_models(sorted(values) if column == "label" else None)


@pytest.fixture(scope="module")
def made(root: Path, module_folder: NewFolder) -> Path:
    """A project with labels, suggestions and all."""
    folder = module_folder("suggest")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HISTO_MONAI_DEVICE", "cpu")
        patch.setenv("HISTO_MONAI_CPUS", "1")
        _project(root, "label", ["gland", "stroma"])
        assert main(RUN) == 0
    return folder


@pytest.fixture
def project(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it to change, which is the working folder; models are linked."""
    for name in ("raw", "index", "suggestions"):
        shutil.copytree(made / "data" / name, tmp_path / "data" / name)
    (tmp_path / "data/models").symlink_to(made / "data/models")
    shutil.copy(made / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HISTO_MONAI_DEVICE", "cpu")
    monkeypatch.setenv("HISTO_MONAI_CPUS", "1")
    return tmp_path


def _squares(table: pd.DataFrame, slide_id: str) -> np.ndarray:
    of_slide = table[table["slide_id"] == slide_id]
    centers, half = of_slide[["y", "x"]].to_numpy(), of_slide[["side_px"]].to_numpy() / 2
    return np.concatenate([centers - half, centers + half], axis=1)


def test_suggestions_are_squares_of_training_slides_without_a_class(project: Path) -> None:
    table = pd.read_csv(SUGGESTIONS / "suggestions.csv")
    assert table["rank"].tolist() == list(range(1, 10))
    assert set(table["slide_id"]) <= {"a", "b", "d"}
    assert set(table["side_px"]) == {PATCH_PX}
    names = {path.name for path in SUGGESTIONS.iterdir()}
    assert names == {
        "suggestions.csv",
        "suggestions.png",
        "written.json",
        *(f"{name}.geojson" for name in set(table["slide_id"])),
    }
    for slide_id in table["slide_id"].unique():
        regions, points = read_geojson(SUGGESTIONS / f"{slide_id}.geojson")
        drawn = [(*one.exterior_yx.min(axis=0), *one.exterior_yx.max(axis=0)) for one in regions]
        np.testing.assert_allclose(drawn, _squares(table, slide_id))
        assert np.min(drawn) >= 0
        assert np.max(drawn) <= SIDE
        assert [one.label for one in regions] + points == [""] * len(regions)
        of_slide = table[table["slide_id"] == slide_id]
        assert [one.name for one in regions] == [f"suggestion {rank}" for rank in of_slide["rank"]]
        for name, column in (("uncertainty", "uncertainty"), ("probability gland", "student_gland")):
            assert [one.measurements[name] for one in regions] == of_slide[column].tolist()
    np.testing.assert_allclose(table["student_gland"] + table["student_stroma"], 1, atol=2e-6)


def test_no_square_over_a_labeled_one_is_suggested(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suggest, "choose_diverse", partial(choose_diverse, min_distance=0))
    assert main([*RUN[:-1], "2000"]) == 0
    corners = _squares(pd.read_csv(SUGGESTIONS / "suggestions.csv"), "a")[:, :2]
    assert len(corners) > 100
    for top in (24, 224):
        assert not (np.abs(corners - (top, 24)) < PATCH_PX).all(axis=1).any()


def test_all_slides_outside_the_test_are_searched_where_labels_choose(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suggest, "choose_diverse", partial(choose_diverse, min_distance=0))
    params = yaml.safe_load((project / "params.yaml").read_text())
    params["labels"]["own"]["validation"] = "labeled"
    (project / "params.yaml").write_text(yaml.safe_dump(params))
    assert main(["index"]) == 0
    assert main([*RUN[:-1], "120"]) == 0
    assert set(pd.read_csv(SUGGESTIONS / "suggestions.csv")["slide_id"]) == SLIDES.keys() - {"e"}


def test_a_suggestion_with_a_class_becomes_a_labeled_patch_in_the_same_place(project: Path) -> None:
    table = pd.read_csv(SUGGESTIONS / "suggestions.csv")
    before = own.labeled_patches(Path("data/raw/own"), **_placement()).table
    annotations = Path("data/raw/own/annotations")
    annotations.mkdir()
    for path in SUGGESTIONS.glob("*.geojson"):
        (annotations / path.name).write_text(_classified(path, "gland"))
    after = own.labeled_patches(Path("data/raw/own"), **_placement()).table
    new = after[~after["patch_id"].isin(before["patch_id"])]
    assert len(after) == len(before) + len(table)
    assert set(zip(new["label"], new["split"], new["side_px"], strict=True)) == {("gland", "train", PATCH_PX)}
    order = ["slide_id", "y", "x"]
    result, wanted = (rows.sort_values(order)[["y", "x"]].to_numpy() for rows in (new, table))
    np.testing.assert_allclose(result, wanted, atol=0.02)
    assert main(["index"]) == 0
    assert main(RUN) == 0  # and is not suggested again
    again = pd.read_csv(SUGGESTIONS / "suggestions.csv")
    assert not set(zip(*(again[name] for name in order), strict=True)) & set(
        zip(*(table[name] for name in order), strict=True)
    )


def test_suggestions_of_a_slide_with_bounds_are_shown_by_qupath_where_they_lie(project: Path) -> None:
    raw = Path("data/raw/own")
    pixels = tifffile.imread(raw / "d.tif")
    corner = np.array([300, 700])
    write_scn(raw / "d.scn", pixels, (300, 700), (SIDE + 500, SIDE + 900), mpp=MPP, factors=(1,))
    (raw / "d.tif").unlink()
    (raw / "slides.csv").write_text((raw / "slides.csv").read_text().replace("d.tif", "d.scn"))
    assert main(["index"]) == 0
    assert main(RUN) == 0
    table = pd.read_csv(SUGGESTIONS / "suggestions.csv")
    of_slide = table[table["slide_id"] == "d"]
    assert len(of_slide)
    places = of_slide[["y", "x"]].to_numpy()
    reach = PATCH_PX / 2  # cells of the canvas reach over the edge of the image
    assert ((places > corner - reach) & (places < corner + SIDE + reach)).all()
    content = json.loads((SUGGESTIONS / "d.geojson").read_text())
    assert content.pop("histo_monai") == {"origin": "bounds", "bounds_xy": [700, 300]}
    rings = [np.array(one["geometry"]["coordinates"][0][:4])[:, ::-1] for one in content["features"]]
    np.testing.assert_allclose([ring.mean(axis=0) for ring in rings], places - corner, atol=0.02)
    # As QuPath exports them, with a class: they are labeled where they were suggested.
    (raw / "annotations").mkdir()
    (raw / "annotations/d.geojson").write_text(json.dumps(content))
    labeled = _classified(raw / "annotations/d.geojson", "gland")
    (raw / "annotations/d.geojson").write_text(labeled)
    rows = own.labeled_patches(raw, **_placement()).table
    new = rows[(rows["slide_id"] == "d") & rows["patch_id"].str.contains("region")]
    order = ["y", "x"]
    wanted = of_slide.sort_values(order)[order].to_numpy()
    np.testing.assert_allclose(new.sort_values(order)[order].to_numpy(), wanted, atol=0.02)


def _placement() -> dict[str, Any]:
    return {"patch_px": PATCH_PX, "region_mpp": MPP, "min_region_fraction": 0.9, "num_per_region": 64}


def _classified(path: Path, label: str) -> str:
    """The file as QuPath saves it once every annotation has a class."""
    content = json.loads(path.read_text())
    for feature in content["features"]:
        feature["properties"]["classification"] = {"name": label, "color": [200, 0, 0]}
    return json.dumps(content)


def test_work_on_suggestions_is_never_overwritten(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = next(SUGGESTIONS.glob("*.geojson"))
    untouched, work = path.read_text(), _classified(path, "gland")
    path.write_text(work)
    assert main(RUN) == 1
    assert f"{path.name}: was changed since" in capsys.readouterr().err.strip().splitlines()[-1]
    assert path.read_text() == work
    path.write_text(untouched)
    for name in ("notes.txt", "another/suggestions.csv"):
        mine = SUGGESTIONS / name
        mine.parent.mkdir(exist_ok=True)
        mine.write_text("mine")
        assert main(RUN) == 1
        assert f"{name}: exists, and this command did not write it" in capsys.readouterr().err
        assert mine.read_text() == "mine"
        mine.unlink()


def test_files_of_these_names_that_suggest_did_not_write_are_not_overwritten(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path("mine")
    folder.mkdir()
    for name in ("suggestions.csv", "suggestions.png", "a.geojson"):
        (folder / name).write_text('{"type": "FeatureCollection", "features": []}')
        before = (folder / name).stat()
        assert main([*RUN, "--output", "mine"]) == 1
        assert f"mine/{name}: exists, and this command did not write it" in capsys.readouterr().err
        assert (folder / name).stat() == before
        (folder / name).unlink()


def test_suggestions_that_became_annotations_by_a_link_are_not_replaced(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = next(SUGGESTIONS.glob("*.geojson"))
    annotations = Path("data/raw/own/annotations")
    annotations.mkdir()
    (annotations / path.name).symlink_to(path.absolute())
    assert main(RUN) == 1
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"{path.name}: is the input data/raw/own/annotations/{path.name} by another name" in line


def test_workers_and_processes_change_no_byte(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name: path.read_bytes() for path in SUGGESTIONS.iterdir()}
    monkeypatch.setenv("HISTO_MONAI_WORKERS", "2")
    assert main([*RUN, "--output", "elsewhere"]) == 0
    assert {path.name: path.read_bytes() for path in Path("elsewhere").iterdir()} == before


def test_scores_are_suggested_where_the_two_models_disagree(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HISTO_MONAI_DEVICE", "cpu")
    _project(root, "score", [0.2, 0.7])
    assert main([*RUN[:-1], "2000"]) == 0
    assert "requested=2000" in caplog.text
    table = pd.read_csv(SUGGESTIONS / "suggestions.csv")
    apart = (table["student"] - table["finetuned"]).abs()
    assert (apart > 0).all()
    ratio = table["uncertainty"] / apart
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-3)
    regions, _ = read_geojson(next(SUGGESTIONS.glob("*.geojson")))
    assert set(regions[0].measurements) == {"uncertainty", "score", "score before consistency training"}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--side-um", "12"], "--side-um: 12 µm is below the 16 µm"),
        (["--num", "0"], "--num: 0 is below 1"),
        (["--num=-3"], "--num: -3 is below 1"),
        *(
            ([f"--side-um={value}"], f"--side-um: {value} is not a positive number")
            for value in ("0", "-1", "nan", "inf")
        ),
        (["--side-um", "250"], "holds a field of 250 µm"),
        (["--method", "rsp"], "no such model"),
    ],
)
def test_a_wrong_call_is_one_line(
    project: Path, capsys: pytest.CaptureFixture[str], more: list[str], message: str
) -> None:
    assert main([*RUN, "--output", "elsewhere", *more]) == 1
    assert message in capsys.readouterr().err.strip().splitlines()[-1]
    assert not Path("elsewhere").exists()


def test_without_a_run_that_of_the_recommended_model_suggests(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["suggest", "--seed", "0", "--num", "9"]) == 1
    assert "--method and --seed: one is missing" in capsys.readouterr().err
    model = Run("random", 0, 0, "paper").models["student"]
    found = {"method": "random", "encoder": 0, "student": "paper", "seed": 0, "why": "the only one"}
    chosen = project / "data/models/chosen/chosen.json"
    chosen.parent.mkdir()
    chosen.write_text(json.dumps({"model": str(model), "sha256": file_sha256(model), **found}))
    before = (SUGGESTIONS / "suggestions.csv").read_bytes()
    assert main(["suggest", "--num", "9"]) == 0
    assert (SUGGESTIONS / "suggestions.csv").read_bytes() == before
    shutil.rmtree(chosen.parent)
