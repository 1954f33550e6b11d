"""The names and tables of the whole release of Camelyon16, with the oddities that its files have.

Slides are empty files here: what is tested comes before any slide is opened. Facts: the release's README (test_049 is a
duplicate, normal_086 became tumor_111, test_114 is not outlined throughout), its annotations (tumor_054 has an outline
of two points; groups Tumor, _0, _1, _2, Exclusion and None), and how copies of it lie on disks (other cases, zips,
hidden files of macOS, masks and checksums beside).
"""

from __future__ import annotations

import logging
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tifffile

from histo_monai.data.readers.camelyon16 import reader as camelyon16
from histo_monai.data.readers.camelyon16.release import (
    PARTLY_OUTLINED,
    annotations_by_id,
    read_lesions,
    read_reference,
    slides_by_id,
)
from histo_monai.slides.annotations import Frame
from histo_monai.slides.annotations.outlines import read_regions
from tests.folders import NewFolder

NUM = {"normal": 160, "tumor": 111, "test": 130}
TUMOR_TESTS = [*range(1, 49), 114]
"""Any 49 of the test slides; the release has 49 with tumor."""


def polygon(name: str, group: str | None, num: int = 4, scale: float = 100.0, kind: str = "Polygon") -> str:
    turn = np.linspace(0, 2 * np.pi, num, endpoint=False)
    rows = "".join(
        f'<Coordinate Order="{n}" X="{300 + scale * np.cos(t):.4f}" Y="{300 + scale * np.sin(t):.4f}" />'
        for n, t in enumerate(turn)
    )
    of = "" if group is None else f' PartOfGroup="{group}"'
    return f'<Annotation Color="#F4FA58"{of} Type="{kind}" Name="{name}"><Coordinates>{rows}</Coordinates></Annotation>'


def asap(*annotations: str) -> str:
    groups = '<Group Color="#00ff00" PartOfGroup="None" Name="Tumor"><Attributes /></Group>'
    return (
        '<?xml version="1.0"?>\n<ASAP_Annotations>\n\t<Annotations>'
        + "".join(annotations)
        + f"</Annotations><AnnotationGroups>{groups}</AnnotationGroups></ASAP_Annotations>"
    )


def annotation(kind: str, number: int) -> str:
    """One of the ways in which the files of the release are written."""
    plain = polygon("Annotation 0", "Tumor" if number > 70 or kind == "test" else "_0")
    if (kind, number) == ("tumor", 54):
        return asap(
            *(polygon(f"_{n}", "_0") for n in range(8)), polygon("_8", "_1", num=2), polygon("_9", "_1")
        )
    ways = [
        asap(plain),
        asap(plain.replace(".", ",")),
        asap(plain, polygon("_1", "_1"), polygon("_2", "_2", scale=20)),
        asap(plain, polygon("Annotation 1", "Exclusion", scale=20)),
        asap(plain, polygon("Annotation 1", "None", scale=30)),
        asap(plain, polygon("Annotation 1", None, scale=30)),
        asap(polygon("Annotation 0", "Tumor", kind="Spline"), polygon("D", "None", num=1, kind="Dot")),
        asap(plain, polygon("M", "None", num=2, kind="Measurement")),
        "\ufeff" + asap(plain),
        asap(plain).replace("<Annotation ", '<Annotation Extra="1" ').replace("\n", "\r\n"),
    ]
    return ways[number % len(ways)]


@pytest.fixture(scope="module")
def release(module_folder: NewFolder) -> Path:
    root = module_folder("camelyon16")
    training, testing = root / "training", root / "testing"
    folders = {"normal": training / "normal", "tumor": training / "tumor", "test": testing / "images"}
    for kind, folder in folders.items():
        folder.mkdir(parents=True)
        for number in range(1, NUM[kind] + 1):
            if (kind, number) not in {("test", 49), ("normal", 86)}:
                name = f"{kind}_{number:03d}.tif"
                (folder / (name.capitalize() if number % 3 else name)).touch()
    xml = training / "lesion_annotations"
    xml.mkdir()
    for number in range(1, 112):
        (xml / f"tumor_{number:03d}.xml").write_text(annotation("tumor", number), encoding="utf-8")
    with zipfile.ZipFile(testing / "lesion_annotations.zip", "w") as archive:
        for number in TUMOR_TESTS:
            if number != 114:
                archive.writestr(f"test_{number:03d}.xml", annotation("test", number))
                archive.writestr(f"__MACOSX/._test_{number:03d}.xml", b"\0\5\x16\7")
    rows = [
        f"test_{number:03d},{'Tumor,IDC,Macro' if number in TUMOR_TESTS else 'Normal,None,None'}"
        for number in range(1, 131)
    ]
    (testing / "reference.csv").write_text("\n".join(rows) + "\n")
    for beside in (
        "README.md",
        "license.txt",
        "checksums.md5",
        "training/.DS_Store",
        "training/normal/desktop.ini",
    ):
        (root / beside).write_text("beside")
    (xml / "._tumor_001.xml").write_bytes(b"\0\5\x16\7")
    (xml / "tumor_001_mask.tif").touch()
    (folders["test"] / ".Copy of Test_039.tif.mufpVx").touch()
    (testing / "evaluation").mkdir()
    (testing / "evaluation" / "evaluation_mask.zip").touch()
    return root


def test_every_slide_annotation_and_row_is_found_by_its_id(release: Path) -> None:
    for folder, kind, num in (
        ("training/normal", "normal", 159),
        ("training/tumor", "tumor", 111),
        ("testing/images", "test", 129),
    ):
        slides = slides_by_id(release / folder, kind)
        assert len(slides) == num
        assert list(slides) == sorted(slides)
    assert list(annotations_by_id(release / "training")) == [f"tumor_{n:03d}" for n in range(1, 112)]
    assert len(annotations_by_id(release / "testing")) == 48
    assert len(read_reference(release / "testing" / "reference.csv")) == 130


def test_the_papers_270_training_and_129_test_slides_are_split_and_diagnosed(release: Path) -> None:
    pretraining = camelyon16.pretraining_slides(release, 35, 25)
    assert len(pretraining) == 60
    table, notes = camelyon16.whole_slides(
        release,
        num_reserved_normal=35,
        num_reserved_tumor=25,
        validation_fraction=0.2,
        seed=0,
        skip_bad_slides=False,
    )
    table = table.set_index("slide_id")
    assert notes == []
    is_test = table["split"] == "test"
    assert (is_test.sum(), (~is_test).sum()) == (129, 124 + 86)
    assert (table.loc[is_test, "label"] == "tumor").sum() == 49
    assert not set(pretraining["slide_id"]) & set(table.index)
    # It has no annotation, and is a tumor slide all the same.
    assert table.loc["test_114", ["label", "size", "annotation"]].tolist() == ["tumor", "macro", ""]
    partly = [name for name in PARTLY_OUTLINED if name not in set(pretraining["slide_id"])]
    assert len(partly) == 15
    assert table.index[~table["exhaustive"]].tolist() == [*partly, "test_114"]


def test_every_annotation_is_read_and_what_is_left_out_is_reported(
    release: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = annotations_by_id(release / "training") | annotations_by_id(release / "testing")
    assert len(files) == 159
    lesions = {slide_id: read_lesions(path) for slide_id, path in files.items()}
    assert all(one.outlines for one in lesions.values())
    left_out = {slide_id: [str(some) for some in one.left_out] for slide_id, one in lesions.items()}
    path = files["tumor_054"]
    assert left_out["tumor_054"] == [f"{path}: 1 outline without area left out: '_8'"]
    assert len(lesions["tumor_054"].outlines) == 9
    measured = {name for name in files if int(name[-3:]) % 10 == 7}
    assert all(
        left_out[name] == [f"{files[name]}: 1 annotation of type Measurement left out: 'M'"]
        for name in measured
    )
    odd = {slide_id for slide_id, lines in left_out.items() if lines} - measured
    assert odd == {"tumor_054"} | {name for name in files if int(name[-3:]) % 10 in (4, 5)}
    assert all(len(lesions[name].unclear) == 1 for name in odd - {"tumor_054"})
    with caplog.at_level(logging.WARNING):
        for slide_id, path in files.items():
            regions = read_regions(path, Frame())
            assert len(regions) == len(lesions[slide_id].outlines)
            assert all(region.label in ("Tumor", "_0", "_1") for region in regions)
    without_area = [line for name in ("tumor_054", *measured) for line in left_out[name]]
    assert sorted(record.getMessage() for record in caplog.records) == sorted(without_area)


def write_slide(path: Path, seed: int) -> None:
    """640 × 640 px of pink tissue, 1 µm/px."""
    rng = np.random.default_rng(seed)
    pixels = rng.normal((200, 100, 160), 20, (640, 640, 3)).clip(0, 255).astype(np.uint8)
    pixels[:40] = 245
    resolution = {"resolution": (10_000, 10_000), "resolutionunit": "CENTIMETER"}
    tifffile.imwrite(path, pixels, tile=(128, 128), photometric="rgb", **resolution)


def test_two_points_and_no_group_are_warnings_of_the_index_and_what_is_in_no_group_is_neither(
    tmp_path: Path,
) -> None:
    training = tmp_path / "training"
    for folder in ("normal", "tumor", "lesion_annotations"):
        (training / folder).mkdir(parents=True)
    for number in range(1, 3):
        write_slide(training / "normal" / f"normal_{number:03d}.tif", number)
    texts = {
        53: asap(polygon("_0", "_0", scale=200), polygon("_8", "_1", num=2), polygon("?", "None", scale=90)),
        57: asap(polygon("_0", "_0", scale=200), polygon("a", "_0", 1), polygon("b", "_2", 2)),
    }
    for number, text in texts.items():
        write_slide(training / "tumor" / f"tumor_{number:03d}.tif", number)
        (training / "lesion_annotations" / f"tumor_{number:03d}.xml").write_text(text)
    few = {"tumor": 30, "normal": 60}
    drawn = camelyon16.labeled_patches(
        tmp_path,
        num_reserved_normal=0,
        num_reserved_tumor=0,
        patch_px=32,
        mpp=1.0,
        min_tumor_fraction=0.9,
        wanted={"train": few, "validation": few, "test": {"tumor": 0, "normal": 0}},
        tissue_mpp=4.0,
        min_tissue_fraction=0.5,
        validation_fraction=0.5,
        seed=0,
        skip_bad_slides=False,
        processes=1,
    )
    folder = training / "lesion_annotations"
    assert drawn.warnings == (
        f"{folder}: 3 outlines without area left out: 1 in tumor_053.xml ('_8'); 2 in tumor_057.xml ('a', 'b')",
        f"{folder / 'tumor_053.xml'}: 1 outline in no group left out: '?'",
    )
    table = drawn.table
    odd: pd.DataFrame = table[table["slide_id"] == "tumor_053"]
    assert set(odd["label"]) == {"tumor", "normal"}
    # The diamond |y - 300| + |x - 300| < 90 is neither; a square of 32 px reaches 32 px along such a diagonal.
    # A tenth of a tumor patch may be something else, a corner of √102 px.
    away = (odd[["y", "x"]] - 300).abs().sum(axis=1)
    assert (away[odd["label"] == "normal"] > 90 + 32 - 2).all()
    assert (away[odd["label"] == "tumor"] > 90 + 32 - 2 - 15).all()
    other = table[(table["slide_id"] == "tumor_057") & (table["label"] == "tumor")]
    assert ((other[["y", "x"]] - 300).abs().sum(axis=1) < 100).any()
