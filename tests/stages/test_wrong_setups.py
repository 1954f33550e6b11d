"""Set-ups that cannot work, or do not do what was meant: reported before anything is trained, with what to change."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

from histo_monai.pipeline.cli import main
from histo_monai.slides.annotations import Region, write_geojson
from tests.hostile.project import (
    OWN,
    SIDE_PX,
    all_of,
    edit,
    params_with,
    replaced,
    slide_pixels,
    with_cell,
    write_image,
    write_own_project,
    write_slide,
    write_text,
)

SLIDES, PATCHES = OWN / "slides.csv", OWN / "patches.csv"
SQUARES = [(y, x) for y in (150, 350) for x in (150, 250)]


def _pictures(
    count: int = 24, side_px: int = 32, mpp: str = "", labels: str = "tumor normal"
) -> Callable[[], None]:
    """Labeled pictures in place of squares; two of three for training."""

    def change() -> None:
        rows = ["path,label,patient_id,split,mpp"]
        for i in range(count):
            write_image(OWN / f"{i}.png", i, side_px)
            split = ("train", "train", "train", "validation", "test", "test")[i // 2 % 6]
            rows.append(f"{i}.png,{labels.split()[i % 2]},{split}{i // 12},{split},{mpp}")
        write_text(PATCHES, "\n".join(rows) + "\n")

    return change


def _squares(
    answer: Callable[[int, int], str], split: str = "", mpp: Callable[[int], str] = lambda slide: "1"
) -> None:
    """Four squares on each of seven slides; `answer` and `mpp` say what their label and resolution are."""
    rows = ["slide_id,y,x,mpp,label,split"]
    rows += [
        f"s{i},{y},{x},{mpp(i)},{answer(i, place)},{split}"
        for i in range(7)
        for place, (y, x) in enumerate(SQUARES)
    ]
    write_text(PATCHES, "\n".join(rows) + "\n")


def _on_glass() -> None:
    """The upper half of every slide is empty, its squares are called tumor."""
    for i in range(7):
        pixels = slide_pixels(i)
        pixels[: SIDE_PX // 2] = 245
        write_slide(OWN / f"s{i}.tif", pixels=pixels)
    _squares(lambda slide, place: "tumor" if place < 2 else "normal")


def _of_one_class(split: str) -> Callable[[], None]:
    """60 pictures of a split are tumor but one."""

    def change() -> None:
        _pictures()()
        rows = [f"v{i}.png,{'normal' if i == 0 else 'tumor'},other{split},{split}," for i in range(60)]
        for i in range(60):
            write_image(OWN / f"v{i}.png", 100 + i)
        edit(PATCHES, lambda text: text + "\n".join(rows) + "\n")

    return change


def _scores() -> None:
    """Squares have scores in place of classes."""
    _squares(lambda slide, place: f"0.{slide}{place}")
    edit(PATCHES, lambda text: text.replace("label", "score"))


def _without(column: str) -> Callable[[], None]:
    """slides.csv and patches.csv without a column."""

    def change() -> None:
        for path in (SLIDES, PATCHES):
            rows = [line.split(",") for line in path.read_text().splitlines()]
            kept = [i for i, name in enumerate(rows[0]) if name != column]
            write_text(path, "\n".join(",".join(row[i] for i in kept) for row in rows) + "\n")

    return change


def _slide_labels(labels: str) -> Callable[[], None]:
    """Column label of slides.csv, a letter each: tumor, normal, or of another name; - for none."""
    names = {"t": "tumor", "n": "normal", "c": "cancer", "-": ""}
    return all_of(*(with_cell(SLIDES, i + 2, "label", names[label]) for i, label in enumerate(labels)))


NO_MAPS = params_with(slide_level__pretraining_methods=[])
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "mapped class that is none": (
        lambda: _squares(lambda slide, place: ("gland", "stroma")[place % 2]),
        r"heatmap\.own\.positive_class is 'tumor', but the classes are gland, stroma"
        r".*slide_level\.pretraining_methods: \[\]",
    ),
    "pictures without µm/px, and maps": (
        _pictures(),
        r"12 of 12 training patches have no µm/px. Fix: fill the column mpp of patches\.csv "
        r".*slide_level\.pretraining_methods: \[\]",
    ),
    "pictures with µm/px in one row only": (
        all_of(_pictures(mpp="1"), with_cell(PATCHES, 3, "mpp", "")),
        r"1 of 12 training patches have no µm/px. Fix: fill the column mpp",
    ),
    "squares of several resolutions": (
        lambda: _squares(
            lambda slide, place: ("tumor", "normal")[place % 2], mpp=lambda slide: "12"[slide % 2]
        ),
        r"several resolutions at 32 px.*column mpp of patches\.csv",
    ),
    "stride that is no whole number of pixels": (
        params_with(heatmap__own={"stride_um": 33.5, "positive_class": "tumor"}),
        r"heatmap\.own: stride_um: 33\.5 .*set stride_um to 34; or to null, the side of a patch \(32 µm\)",
    ),
    "splits without a slide for validation": (
        replaced(SLIDES, ",validation", ",train"),
        r"no slide is in the validation split\. Fix: write validation into .* column split",
    ),
    "test slide that is not there": (
        lambda: (OWN / "s6.tif").unlink(),
        r"s6\.tif: no such file. Fix: check the path in the table of slides",
    ),
    "test slide that is no slide": (
        lambda: write_text(OWN / "s5.tif", "not a slide"),
        r"s5\.tif: not a slide that .* reads. Fix: use a tiled pyramidal image: vips tiffsave",
    ),
    "test slide without µm/px": (
        lambda: write_slide(OWN / "s6.tif", 6, mpp=None),
        r"s6\.tif.*states no resolution.*fill the column mpp of the table of slides",
    ),
    "slide that is coarser than the labels": (
        lambda: write_slide(OWN / "s6.tif", 6, mpp=2.0),
        r"s6.*finer than the slide's own 2 µm/px",
    ),
    "a class on one training slide": (
        lambda: _squares(
            lambda slide, place: "tumor" if slide == 0 or (slide > 3 and place % 2) else "normal"
        ),
        r"training slides are diagnosed by models.*class 'tumor' has labels of fewer than two patients.*label patches",
    ),
    "a class in training only": (
        all_of(NO_MAPS, with_cell(PATCHES, 2, "label", "necrosis")),
        r"class 'necrosis' is in train but not in validation",
    ),
    "slides that no encoder can see as asked": (
        all_of(PATCHES.unlink, _slide_labels("tntntnt"), params_with(features__mpp=0.5)),
        r"7 of 7 slides cannot be read at 0\.5 µm/px .*\(features\.mpp\): s0: .*slide_level\.pretraining_methods",
    ),
    "alpha that leaves nothing": (
        params_with(alpha=0.01),
        r"alpha 0\.01 leaves class '(normal|tumor)' without a label: .*raise alpha to",
    ),
    "patient on two sides": (
        with_cell(SLIDES, 8, "patient_id", "P0"),
        r"patient P0 is in train .* and in test",
    ),
    "slide that the list does not name": (
        with_cell(PATCHES, 5, "slide_id", "s9"),
        r"patches\.csv, row 5: slide 's9' is not in .*slides\.csv",
    ),
    "column of another name": (
        replaced(PATCHES, "label", "lable"),
        r"patches\.csv.*lable",
    ),
    "square outside its slide": (
        with_cell(PATCHES, 2, "y", "2000"),
        r"patches\.csv, row 2: .*reaches outside slide 's0'",
    ),
    "unlabeled patches beside pictures": (
        all_of(NO_MAPS, _pictures(), params_with(labels__own__unlabeled=8)),
        r"labels\.own\.unlabeled: .*no common µm/px.*set it to 0",
    ),
}
"""What is wrong -> what makes it so, and the line that refuses it."""
REMARKED: dict[str, tuple[Callable[[], object], str]] = {
    "labels that are set aside": (
        params_with(alpha=0.5),
        r"alpha 0\.5: the labels of 50% of the 16 training patches are not used.*set alpha: 1 to use all",
    ),
    "slide labels of other names": (
        _slide_labels("cncncnc"),
        r"no diagnosis of slides: .*'tumor'.*heatmap\.own\.positive_class",
    ),
    "a label that one slide has": (
        _slide_labels("tnn----"),
        r"slide labels are not used: 'tumor' has one slide or patient.*label another",
    ),
    "test slides of another label": (
        _slide_labels("tntn-cn"),
        r"slide labels are not used: only test slides have the label 'cancer'",
    ),
    "labels of slides alone, and no test": (
        all_of(_without("split"), PATCHES.unlink, _slide_labels("tntntnt")),
        r"no patch is labeled: the labels of 7 slides \(normal, tumor\) .*\(column split\)",
    ),
    "outlines of glass": (
        _on_glass,
        r"14 of 14 patches of class 'tumor' show empty glass, no tissue \(the first: s\d.*outline the class again",
    ),
    "nothing to test on": (
        all_of(NO_MAPS, _without("split")),
        r"no patch has the split test: .*column split",
    ),
    "more for validation than for training": (
        all_of(NO_MAPS, _of_one_class("validation")),
        r"more patches for validation \(64\) than for training \(12\).*index\.validation_fraction",
    ),
    "a validation of one class": (
        all_of(NO_MAPS, _of_one_class("validation")),
        r"9\d% of the 64 validation patches are 'tumor', so a constant prediction",
    ),
    "pictures that are shrunk": (
        all_of(NO_MAPS, _pictures(side_px=96)),
        r"24 of 24 images have up to 96 px a side and are shrunk to patch_px 32",
    ),
    "one training slide of a label": (
        _slide_labels("tnnnntn"),
        r"no diagnosis of slides: .* are 1 of 'tumor' and 4 of others.*needs 2 of each.*label further slides",
    ),
    "classes that differ in case": (
        lambda: _squares(lambda slide, place: ("tumor", "normal", "Normal", "normal")[place]),
        r"Normal.*normal|normal.*Normal",
    ),
    "maps of a method that is not run": (
        params_with(
            slide_level={
                "pretraining_methods": ["rsp_moco"],
                "semisupervised_methods": ["paper"],
                "num_encoders": 1,
            }
        ),
        r"no slide will be mapped: slide_level asks for rsp_moco.*methods are random",
    ),
    "scores after a pretraining that looks past stains": (
        all_of(
            params_with(
                pretraining_methods=["random", "moco"],
                slide_level__pretraining_methods=[],
                corpora__own__num_train=32,
            ),
            _scores,
        ),
        r"labels are scores, and moco learns to ignore stain, on which scores depend\. "
        r"Fix: compare with pretraining_methods: \[random, rsp\]",
    ),
    "students without a patch to learn from": (
        NO_MAPS,
        r"semi-supervised training has no unlabeled patch: .*unlabeled",
    ),
}
"""What is not as it was meant -> what makes it so, and the line that says it."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven small slides with labels; the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HISTO_MONAI_CPUS", "1")
    write_own_project()


@pytest.mark.usefixtures("project")
def test_what_is_right_passes_and_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["index"]) == main(["check"]) == 0
    page = Path("data/check/index.html").read_text()
    assert "Ready to train" in page
    assert all(f"<b>s{i}</b>" in page for i in range(7))
    assert len(list(Path("data/check/slides").glob("*.jpg"))) == 7
    assert json.loads(Path("data/check/passed.json").read_text()) == {"passed": True}
    assert not re.search(r"https?://", page)


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_set_up_is_refused_before_any_training(case: str, capfd: pytest.CaptureFixture[str]) -> None:
    change, line = REFUSED[case]
    change()
    assert main(["index"]) or main(["check"])
    (error,) = [text for text in capfd.readouterr().err.splitlines() if "error: " in text]
    assert re.search(line, error), error
    assert not Path("data/check/passed.json").exists()


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("case", REMARKED)
def test_an_odd_set_up_is_remarked_on(case: str, caplog: pytest.LogCaptureFixture) -> None:
    change, line = REMARKED[case]
    change()
    assert main(["index"]) == 0
    main(["check"])
    assert any(re.search(line, text) for text in caplog.messages), caplog.messages
    data_warnings = json.loads(Path("data/check/metrics.json").read_text())["data_warnings"]
    assert any(re.search(line, text) for text in data_warnings)


@pytest.mark.usefixtures("project")
def test_the_page_of_a_refused_project_states_what_to_mend(capfd: pytest.CaptureFixture[str]) -> None:
    REFUSED["mapped class that is none"][0]()
    assert main(["index"]) == 0
    assert main(["check"]) == 1
    page = Path("data/check/index.html").read_text()
    assert "Not ready to train: 1 to fix" in page
    assert "heatmap.own.positive_class" in page
    assert len(page) < 200_000


@pytest.mark.usefixtures("project")
def test_new_labels_leave_what_pretraining_depends_on_and_a_slide_of_other_bytes_does_not(root: Path) -> None:
    stage = yaml.safe_load((root / "dvc.yaml").read_text())["stages"]["pretrain"]
    read = [Path(name) for name in stage["deps"] if name.startswith("data/") and "code" not in name]
    assert {path.name for path in read} == {"passed.json", "slides.csv", "centers.csv"}

    def tables() -> dict[str, bytes]:
        assert main(["index"]) == main(["check"]) == 0
        return {path.name: path.read_bytes() for path in read}

    before = tables()
    edit(PATCHES, lambda text: text + "s1,250,350,1,tumor,train\n")
    annotation = OWN / "annotations/s2.geojson"
    write_geojson(
        annotation, [Region(np.array([(100.0, 300), (100, 400), (200, 400), (200, 300)]), label="normal")]
    )
    assert tables() == before
    assert Path("data/index/patches.csv").read_text().count("\ns2-") > 4
    with (OWN / "s0.tif").open("ab") as file:  # which changes no pixel
        file.write(b"more")
    after = tables()
    assert {name for name in before if after[name] != before[name]} == {"slides.csv"}
