"""Labels that cannot be learned from, as a stranger meets them: one line before training starts, nothing written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import tifffile
import yaml

from histo_monai.pipeline.cli import main
from tests.papers_way import in_the_papers_way

CLASSES = ("ADI", "BACK", "DEB", "LYM", "MUC", "MUS", "NORM", "STR", "TUM")
PATCHES = "path,label,patient_id,split\n" + "".join(
    f"{split}{i}.png,{'ab'[i % 2]},{split},{split}\n"
    for split in ("train", "validation", "test")
    for i in range(4)
)


def _grainy(seed: int, side: int) -> np.ndarray:
    grain = np.random.default_rng(seed).integers(-40, 40, (side // 8, side // 8, 1))
    return np.clip(np.array([200, 110, 170]) + grain.repeat(8, 0).repeat(8, 1), 0, 255).astype(np.uint8)


def _slide(path: Path, seed: int) -> None:
    """A grainy square of tissue on white glass, 1 µm/px."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full((1024, 1024, 3), 245, np.uint8)
    pixels[128:896, 128:896] = _grainy(seed, 768)
    tifffile.imwrite(
        path,
        pixels,
        tile=(256, 256),
        photometric="rgb",
        resolution=(10_000, 10_000),
        resolutionunit="CENTIMETER",
    )


@pytest.fixture
def raw(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes a project that pretrains on two slides of its own; returns the folder of a dataset below data/raw."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HISTO_MONAI_CPUS", "1")
    monkeypatch.setenv("HISTO_MONAI_DEVICE", "cpu")
    folder = tmp_path / "data/raw/own"
    for i in range(2):
        _slide(folder / f"{i}.tif", i)
    (folder / "slides.csv").write_text("slide_id,path\ns0,0.tif\ns1,1.tif\n")
    for number, line in enumerate(PATCHES.splitlines()[1:]):
        cv2.imwrite(str(folder / line.split(",")[0]), _grainy(number + 10, 48))

    def make(dataset: str, **changes: Any) -> Path:
        params = in_the_papers_way(yaml.safe_load((root / "params.yaml").read_text()))
        params |= {
            "source": "raw",
            "dataset": dataset,
            "pretraining_dataset": "own",
            "patch_px": 32,
        } | changes
        params["corpora"]["own"] |= {"num_train": 8, "num_validation": 4}
        params["corpora"]["camelyon16"] |= {"num_normal": 0, "num_tumor": 0}
        counts = {"num_tumor": 2, "num_normal": 2}
        params["labels"]["camelyon16"] |= {
            "train": dict(counts),
            "separate_validation": dict(counts),
            "test": dict.fromkeys(counts, 0),
        }
        (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
        (tmp_path / "data/raw" / dataset).mkdir(exist_ok=True)
        return tmp_path / "data/raw" / dataset

    return make


def _kather(folder: Path) -> None:
    for i, (tree, name) in enumerate((t, c) for t in ("NCT-CRC-HE-100K", "CRC-VAL-HE-7K") for c in CLASSES):
        (folder / tree / name).mkdir(parents=True)
        for k in range(4):
            cv2.imwrite(str(folder / tree / name / f"{name}-{k}.tif"), _grainy(100 * i + k, 224))


def _unknown_class(folder: Path) -> None:
    _kather(folder)
    (folder / "NCT-CRC-HE-100K/TUM").rename(folder / "NCT-CRC-HE-100K/TUMOUR")


def _breastpathq(score: str, header: str = "slide,rid,y") -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        datasets = folder / "breastpathq/datasets"
        for split in ("train", "validation"):
            (datasets / split).mkdir(parents=True)
            cv2.imwrite(str(datasets / split / f"{split}_1.tif"), _grainy(1, 512))
        (datasets / "train_labels.csv").write_text(f"{header}\ntrain,1,{score}\n")
        (datasets / "val_labels.csv").write_text("slide,rid,y\nvalidation,1,0.5\n")
        test = folder / "breastpathq-test"
        (test / "test_patches").mkdir(parents=True)
        cv2.imwrite(str(test / "test_patches/test_1.tif"), _grainy(2, 512))
        (test / "test_labels.csv").write_text("slide,rid,p1,p2\ntest,1,0.5,0.4\n")

    return write


def _outlines_without_polygons(folder: Path) -> None:
    for i, name in enumerate(("normal_001", "normal_002", "tumor_001", "tumor_002")):
        _slide(folder / "training" / name.split("_")[0] / f"{name}.tif", i)
        if name.startswith("tumor"):
            path = folder / "training/lesion_annotations" / f"{name}.xml"
            path.parent.mkdir(exist_ok=True)
            path.write_text("<ASAP_Annotations><Annotations></Annotations></ASAP_Annotations>")


def _own(text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / "patches.csv").write_text(text) and None


BAD = {
    "a score out of range": ("breastpathq", _breastpathq("1.2"), ("train_labels.csv, row 2", "1.2")),
    "a score that is no number": ("breastpathq", _breastpathq("NaN"), ("train_labels.csv, row 2", "NaN")),
    "a csv without a needed column": (
        "breastpathq", _breastpathq("0.5", "slide,rid,cellularity"), ("train_labels.csv: column 'y' is missing",),
    ),
    "an unknown class folder": ("kather", _unknown_class, ("TUMOUR", "ADI")),
    "outlines without polygons": (
        "camelyon16", _outlines_without_polygons, ("tumor_001.xml: outlines no tumor", "Tumor, _0, _1"),
    ),
    "a patch outside its slide": (
        "own", _own("slide_id,y,x,mpp,label\ns0,500,500,1.0,a\ns1,10,500,1.0,b\n"), ("patches.csv, row 3", "outside"),
    ),
    "an empty label": ("own", _own(PATCHES.replace("train1.png,b", "train1.png,")), ("patches.csv, row 3", "label")),
    "a patient on two sides": (
        "own", _own(PATCHES.replace("b,test,test", "b,train,test")), ("train0.png", "test", "patient"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(BAD))
def test_bad_labels_are_one_line_and_nothing_is_written(
    kind: str, raw: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    dataset, write, message = BAD[kind]
    write(raw(dataset))
    line = _refused(capfd, "index")
    for text in message:
        assert text in line, line
    assert not Path("data/index").exists()


def _refused(capfd: pytest.CaptureFixture[str], *argv: str) -> str:
    capfd.readouterr()
    assert main(argv) == 1
    (line,) = [
        line for line in capfd.readouterr().err.splitlines() if "error: " in line or "Traceback" in line
    ]
    assert line.startswith(f"histo-monai {argv[0]}: error: ")
    return line


def test_an_alpha_that_leaves_a_class_without_a_label_is_one_line_before_training(
    raw: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    _own(PATCHES)(raw("own", alpha=0.05))
    assert main(["index"]) == 0
    assert main(["pretrain", "--method", "random"]) == 0
    line = _refused(capfd, "finetune", "--method", "random", "--seed", "0")
    assert "alpha 0.05" in line
    assert "'a'" in line
    assert not Path("data/models/random-0-0").exists()


def test_stages_out_of_order_state_what_is_missing(
    raw: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    folder = raw("own", alpha=1.0, pretraining_methods=["random"])
    run = ("--method", "random", "--seed", "0")
    assert "data/index/patches.csv" in _refused(capfd, "finetune", *run)
    _own(PATCHES)(folder)
    assert main(["index"]) == 0
    assert "data/models/random-0/encoder.safetensors" in _refused(capfd, "finetune", *run)
    assert "data/models/random-0-0/finetuned/folds/folds.csv" in _refused(capfd, "consistency", *run)
    assert "data/models/random-0/encoder.safetensors" in _refused(capfd, "evaluate", *run)
    shutil.rmtree("data/index")
    (folder / "patches.csv").unlink()
    assert main(["index"]) == 0
    assert main(["pretrain", "--method", "random"]) == 0
    stages = ("finetune", "consistency", "evaluate", "heatmap", "aggregate")
    for call in (*([stage, *run] for stage in stages), ["features", "--method", "random"], ["mil", *run]):
        assert main(call) == 0
    assert "no patch is labeled" in Path("data/models/random-0-0/finetuned/metrics.json").read_text()
    assert "no labeled patches or slides" in _refused(capfd, "compare")
