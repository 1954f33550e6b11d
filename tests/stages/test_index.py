"""The index stage on real slides and real labels, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
import pytest
import tifffile
import yaml

from histo_monai.data.tables.patches import read_patches
from histo_monai.pipeline.cli import main
from histo_monai.pipeline.params import load_params
from histo_monai.pipeline.stages.check import _surveys
from histo_monai.reports.check.survey import class_colors
from histo_monai.utils.files.trees import read_bytes
from tests.hostile.project import OWN, params_with, write_own_project, write_text

SLIDES = """slide_id,path,patient_id,split
skin,{0}/cmu-1-small-region.svs,s,train
breast,{0}/breast-lobular.tif,b,validation
"""


@pytest.fixture
def project(
    root: Path, real_slides: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """A project with two real slides to pretrain on; returns the folder of `own`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HISTO_MONAI_CPUS", "1")

    def make(**changes: Any) -> Path:
        params = yaml.safe_load((root / "params.yaml").read_text())
        params |= {
            "source": "raw",
            "dataset": "own",
            "pretraining_dataset": "own",
            "patch_px": 32,
            "pretraining_methods": ["random", "rsp"],
        }
        params["corpora"]["own"] |= {"num_train": 8, "num_validation": 4}
        params["labels"]["own"] |= {"validation": "separate", "validation_within_patients": True}
        (tmp_path / "params.yaml").write_text(yaml.safe_dump(params | changes))
        folder = tmp_path / "data/raw/own"
        folder.mkdir(parents=True)
        (folder / "slides.csv").write_text(SLIDES.format(real_slides))
        return folder

    return make


def _refused(capfd: pytest.CaptureFixture[str]) -> str:
    assert main(["index"]) == 1
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "error: " in line]
    assert not Path("data/index").exists()
    return line


def _metrics() -> dict[str, Any]:
    """Counts, and the description of the labels."""
    result: dict[str, Any] = {}
    for name in ("metrics", "labels"):
        result |= json.loads(Path(f"data/index/{name}.json").read_text())
    return result


def test_real_labels_are_indexed_from_their_zip_one_patient_to_train_and_one_to_test(
    project: Callable[..., Path], real_slides: Path, tmp_path: Path
) -> None:
    folder = project()
    (folder / "idc-patches.zip").symlink_to(real_slides / "idc-patches.zip")
    (tmp_path / "given.csv").write_bytes(read_bytes(real_slides / "idc-patches.zip/idc-patches/index.csv"))
    given = pd.read_csv(tmp_path / "given.csv", dtype={"patient_id": str})
    given["path"] = "idc-patches.zip/" + given["path"]
    given["split"] = np.where(given["patient_id"] == "14306", "test", "")
    given.to_csv(folder / "patches.csv", index=False)
    assert main(["index"]) == 0
    patches = read_patches(Path("data/index/patches.csv"))
    assert len(patches) == 909
    assert patches["path"].str.startswith("data/raw/own/idc-patches.zip/idc-patches/").all()
    assert set(patches["side_px"]) == {50}
    assert patches.groupby("patient_id")["split"].unique().map(sorted).to_dict() == {
        "14082": ["train", "validation"],
        "14306": ["test"],
    }
    metrics = _metrics()
    assert metrics["patches_test"] == 431
    assert metrics["classes"]["idc"]["test"] == 167
    assert metrics["classes"]["idc"]["train"] + metrics["classes"]["idc"]["validation"] == 197
    shared, shrunk = metrics["warnings"]
    assert "common patients (14082)" in shared
    assert shrunk.startswith("909 of 909 images have up to 50 px a side and are shrunk to patch_px 32")


SQUARES = "slide_id,y,x,mpp,label,split\n" + "".join(
    f"{slide},{y},900,1,{label},{split}\n"
    for slide, split in (("skin", "train"), ("breast", "validation"))
    for y, label in ((500, "stroma"), (900, "gland"))
)


def test_labels_on_slides_keep_the_patient_of_the_slide(project: Callable[..., Path]) -> None:
    (project() / "patches.csv").write_text(SQUARES)
    assert main(["index"]) == 0
    patches = read_patches(Path("data/index/patches.csv"))
    assert patches["patient_id"].tolist() == ["s", "s", "b", "b"]
    assert patches["label_rank"].notna().tolist() == [True, True, False, False]
    assert _metrics()["warnings"] == [
        "no patch has the split test: all results are of validation patches, which also selected the models, so they "
        "are too good. Fix: mark test patients in the column split"
    ]


def test_a_test_slide_that_is_pretrained_on_fails_and_leaves_nothing(
    project: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    folder = project()
    text = (
        SQUARES.replace("validation", "test")
        + "skin,700,900,1,gland,validation\nskin,700,700,1,stroma,validation\n"
    )
    (folder / "patches.csv").write_text(text)
    line = _refused(capfd)
    assert "1 leak between splits" in line
    assert "is in test (breast-row0000004) and in pretraining (breast)" in line


def test_slides_without_labels_can_be_pretrained_on(project: Callable[..., Path]) -> None:
    project()
    assert main(["index"]) == 0
    assert read_patches(Path("data/index/patches.csv")).empty
    metrics = _metrics()
    assert metrics["patches_train"] == 0
    assert "patches.csv: not found; fine-tuning and evaluation need labels" in metrics["warnings"][0]


def test_the_error_for_a_missing_dataset_states_its_folder(
    project: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    project(dataset="kather")
    assert (
        "data/raw/kather: not found. Fix: copy or link the kather data there, or set `dataset`"
        in _refused(capfd)
    )


def test_an_outside_patch_is_one_line_and_leaves_nothing(
    project: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    (project() / "patches.csv").write_text(SQUARES + "skin,5,900,1,gland,train\n")
    assert "patches.csv, row 6: the patch around y 5, x 900 of 32 px at 1 µm/px reaches outside" in _refused(
        capfd
    )


def _tissue(seed: int) -> np.ndarray:
    """A grainy piece of tissue, wider than high, on white glass."""
    grain = np.random.default_rng(seed).integers(-60, 60, (8, 12, 1))
    pixels = np.full((768, 1024, 3), 245, np.uint8)
    colors = np.clip(np.array([190, 110, 160]) + grain.repeat(64, 0).repeat(64, 1), 0, 235)
    pixels[128:640, 128:896] = colors.astype(np.uint8)
    return pixels


def _write(path: Path, pixels: np.ndarray) -> None:
    resolution = {"resolution": (10_000, 10_000), "resolutionunit": "CENTIMETER"}
    tifffile.imwrite(path, pixels, tile=(256, 256), photometric="rgb", **resolution)


@pytest.fixture
def dataset(project: Callable[..., Path]) -> Path:
    """The folder of `own` with two slides that patches are squares of, and two test slides without patches."""
    folder = project()
    for number in range(4):
        _write(folder / f"{number}.tif", _tissue(number))
    (folder / "slides.csv").write_text(
        "slide_id,path,patient_id,label,split\n"
        "s0,0.tif,P0,x,train\ns1,1.tif,P1,y,validation\ns2,2.tif,P2,x,test\ns3,3.tif,P3,y,test\n"
    )
    rows = [f"s{slide},{y},512,1,{label}" for slide in (0, 1) for y, label in ((250, "x"), (450, "y"))]
    (folder / "patches.csv").write_text("\n".join(["slide_id,y,x,mpp,label", *rows, ""]))
    return folder


def _ask_for_unlabeled(num: int) -> None:
    params = yaml.safe_load(Path("params.yaml").read_text())
    params["labels"]["own"]["unlabeled"] = num
    Path("params.yaml").write_text(yaml.safe_dump(params))


def test_unlabeled_patches_come_from_training_slides_at_the_resolution_of_the_labels(
    project: Callable[..., Path],
) -> None:
    (project() / "patches.csv").write_text(SQUARES)
    _ask_for_unlabeled(12)
    assert main(["index"]) == 0
    unlabeled = read_patches(Path("data/index/unlabeled.csv"))
    assert set(unlabeled["slide_id"]) == {"skin"}  # breast is validated on
    assert _metrics()["patches_unlabeled"] == len(unlabeled) == 12
    assert set(unlabeled["patient_id"]) == {"s"}
    assert set(unlabeled["mpp"]) == {1.0}
    assert set(unlabeled["side_px"]) == {32}
    assert (unlabeled["label"] == "").all()
    assert unlabeled["label_rank"].isna().all()


def test_more_unlabeled_patches_than_the_tissue_holds_are_refused(
    project: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    (project() / "patches.csv").write_text(SQUARES)
    _ask_for_unlabeled(10**6)
    line = _refused(capfd)
    assert "labels.own.unlabeled: 1000000 unlabeled patches are requested" in line
    assert "request fewer, or add slides" in line


def test_unlabeled_patches_beside_labeled_images_of_no_resolution_are_refused(
    project: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    folder = project()
    rows = ["path,label,split"]
    rng = np.random.default_rng(0)
    for i in range(6):
        cv2.imwrite(str(folder / f"{i}.png"), rng.integers(0, 255, (32, 32, 3), np.uint8))
        rows.append(f"{i}.png,{'ab'[i % 2]},{('train', 'validation', 'test')[i // 2]}")
    (folder / "patches.csv").write_text("\n".join(rows) + "\n")
    _ask_for_unlabeled(4)
    assert "labels.own.unlabeled: the labeled training patches have no common µm/px" in _refused(capfd)
    _ask_for_unlabeled(0)
    assert main(["index"]) == 0


def _change(folder: Path, old: str, new: str) -> None:
    text = (folder / "slides.csv").read_text()
    assert old in text
    (folder / "slides.csv").write_text(text.replace(old, new))


def test_a_clean_dataset_has_whole_slides_of_every_split_and_no_near_copy(dataset: Path) -> None:
    assert main(["index"]) == 0
    slides = pd.read_csv("data/index/whole_slides.csv")
    assert slides["split"].tolist() == ["train", "validation", "test", "test"]
    assert pd.read_csv("data/index/near_copies.csv").empty
    assert [line.split(":")[0] for line in _metrics()["warnings"]] == ["no patch has the split test"]


def _copied(folder: Path) -> None:
    (folder / "3.tif").write_bytes((folder / "0.tif").read_bytes())


def _linked(folder: Path) -> None:
    (folder / "3.tif").unlink()
    (folder / "3.tif").symlink_to(folder / "0.tif")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_copied, "the image of s0-row0000002 is in train (s0-row0000002) and in test (s3)"),
        (_linked, "the image of s0-row0000002 is in train (s0-row0000002) and in test (s3)"),
        (
            lambda folder: _change(folder, "P2", "P0"),
            "patient P0 is in train (s0-row0000002) and in test (s2)",
        ),
        (
            lambda folder: _change(folder, "P3", "P1"),
            "patient P1 is in validation (s1-row0000004) and in test",
        ),
    ],
)
def test_a_test_slide_without_patches_that_was_trained_on_is_refused(
    dataset: Path, damage: Callable[[Path], None], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    damage(dataset)
    line = _refused(capfd)
    assert "between splits" in line
    assert message in line


def test_slides_without_labels_of_patches_are_compared_too(
    dataset: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (dataset / "patches.csv").unlink()
    _copied(dataset)
    line = _refused(capfd)
    assert "2 leaks between splits: the image of s0 is in train (s0) and in test (s3); " in line
    assert "the image of s3 is in test (s3) and in pretraining (s0)" in line


def test_a_mirrored_and_encoded_copy_of_a_slide_is_a_warning_with_its_pair(dataset: Path) -> None:
    encoded = cv2.imencode(".jpg", np.rot90(_tissue(1))[:, ::-1], [cv2.IMWRITE_JPEG_QUALITY, 70])[1]
    _write(dataset / "3.tif", cv2.imdecode(encoded, cv2.IMREAD_COLOR))
    assert main(["index"]) == 0
    pairs = pd.read_csv("data/index/near_copies.csv")
    assert pairs[["kind", "first", "first_split", "second", "second_split"]].to_numpy().tolist() == [
        ["slide", "s1", "validation", "s3", "test"]
    ]
    (warning,) = [line for line in _metrics()["warnings"] if "copies" in line]
    assert "1 pair of slides looks like copies of one another" in warning
    assert "s1 in validation and s3 in test" in warning


def test_ids_that_are_nearly_one_and_ids_that_are_missing_are_warnings(dataset: Path) -> None:
    _change(dataset, "P2", "p 1")
    _change(dataset, "s3,", "S2,")
    assert main(["index"]) == 0
    warnings = "\n".join(_metrics()["warnings"])
    assert "patients that look alike: 'P1' and 'p 1'" in warnings
    assert "slides that look alike: 'S2' and 's2'; they may be one slide" in warnings
    for who in ("P0", "P1", "p 1", "P3"):
        _change(dataset, f"{who},", ",")
    assert main(["index"]) == 0
    assert "no patient ids: each slide counts as a patient of its own" in "\n".join(_metrics()["warnings"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "s2,",
            "../s2,",
            "slides.csv, row 4: slide_id '../s2' cannot name a file: it holds '/'. Fix: write '_s2'",
        ),
        (
            "s2,",
            "batch1/s2,",
            "slides.csv, row 4: slide_id 'batch1/s2' cannot name a file: it holds '/'. Fix: write 'batch1_s2'",
        ),
        (
            "label,split\n",
            "label,split,sha256\n",
            "slides.csv, row 2: 5 values, but the header names 6 columns",
        ),
        (
            "s2,2.tif",
            "s2,none.tif",
            "1 of 4 whole slides cannot be read: slide data/raw/own/none.tif: no such file",
        ),
    ],
)
def test_a_table_of_slides_that_cannot_be_used_is_one_line(
    dataset: Path, old: str, new: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    _change(dataset, old, new)
    assert message in _refused(capfd)


def test_a_slide_whose_sha256_differs_is_one_line(dataset: Path, capfd: pytest.CaptureFixture[str]) -> None:
    digests = [hashlib.sha256((dataset / f"{i}.tif").read_bytes()).hexdigest() for i in range(4)]
    head, *rows = (dataset / "slides.csv").read_text().splitlines()
    lines = [f"{head},sha256", *(f"{row},{digest}" for row, digest in zip(rows, digests, strict=True))]
    (dataset / "slides.csv").write_text("\n".join(lines))
    assert main(["index"]) == 0
    shutil.rmtree("data/index")
    content = bytearray((dataset / "2.tif").read_bytes())
    content[len(content) // 2] ^= 1
    (dataset / "2.tif").write_bytes(content)
    line = _refused(capfd)
    assert "1 of 4 slides do not match their sha256: row 4:" in line
    assert f"not {digests[2][:12]}" in line


def test_a_whole_slide_that_cannot_be_read_may_be_left_out(dataset: Path) -> None:
    params = yaml.safe_load(Path("params.yaml").read_text())
    params["index"]["skip_bad_slides"] = True
    Path("params.yaml").write_text(yaml.safe_dump(params))
    (dataset / "3.tif").write_bytes(b"")
    assert main(["index"]) == 0
    assert pd.read_csv("data/index/whole_slides.csv")["slide_id"].tolist() == ["s0", "s1", "s2"]
    assert any("left out" in line and "3.tif: the file is empty" in line for line in _metrics()["warnings"])


def test_where_only_the_test_is_marked_the_other_patients_are_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HISTO_MONAI_CPUS", "1")
    write_own_project()
    rows = [
        "slide_id,path,patient_id,split",
        *(f"s{i},s{i}.tif,P{i // 2},{'test' * (i > 3)}" for i in range(6)),
    ]
    write_text(OWN / "slides.csv", "\n".join(rows) + "\n")
    squares = [f"s{i},{y},100,1.0,{'ab'[y > 200]}" for i in range(6) for y in (100, 300)]
    write_text(OWN / "patches.csv", "slide_id,y,x,mpp,label\n" + "\n".join(squares) + "\n")
    params_with(labels__own__validation="labeled")()
    assert main(["index"]) == 0
    corpus = pd.read_csv("data/index/slides.csv").groupby("split")["slide_id"].agg(set)
    assert {frozenset(slides) for slides in corpus} == {frozenset({"s0", "s1"}), frozenset({"s2", "s3"})}
    splits = ["train"] * 4 + ["test"] * 2
    assert pd.read_csv("data/index/whole_slides.csv")["split"].tolist() == splits
    by_slide = pd.read_csv("data/index/patches.csv").groupby("slide_id")["split"].agg(list)
    assert by_slide.tolist() == [[split] * 2 for split in splits]


def test_more_classes_than_colors_are_all_shown() -> None:
    every = pd.DataFrame({"slide_id": ["s"], "path": ["s.tif"], "mpp": [np.nan], "outlines": [""]})
    names = list("abcde")
    squares = pd.DataFrame({"path": "s.tif", "label": names, "side_px": 64, "mpp": 1.0, "y": 5.0, "x": 7.0})
    index = load_params(Path(__file__).parents[2] / "params.yaml").index
    centers = pd.DataFrame(columns=["slide_id", "y", "x"])
    (survey,) = _surveys(every, centers, squares, index, class_colors(names))
    assert sum(len(places) for _, places, _ in survey.squares) == len(names)
    assert len({color for color, *_ in survey.squares}) < len(names)
