"""Files called as their slides, in `annotations/` and `coordinates/`."""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest

from histo_monai.data.readers.own import reader as own
from histo_monai.data.tables.patches import LabeledDataset
from histo_monai.pipeline.cli import main
from histo_monai.slides.annotations import Point, Region, write_annotations
from tests.hostile.project import OWN, edit, write_own_project

BOX = np.array([(64, 64), (64, 192), (192, 192), (192, 64)], float)
TUMOR = Region(BOX, label="tumor")
COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "Präparat é") for form in ("NFC", "NFD"))
DOTS = '<Annotation Name="d" Type="Dot" PartOfGroup="tumor"><Coordinates>{}</Coordinates></Annotation>'
ASAP = "<ASAP_Annotations><Annotations>{}</Annotations></ASAP_Annotations>"


def read(folder: Path) -> LabeledDataset:
    return own.labeled_patches(
        folder, patch_px=64, region_mpp=1.0, min_region_fraction=0.75, num_per_region=99
    )


def test_other_files_in_the_folder_are_counted_and_the_outlines_are_read(folder: Path) -> None:
    write_annotations(folder / "annotations/a.geojson", [TUMOR])
    for name in ("Thumbs.db", "a.geojson~", "b.geojson.bak", ".DS_Store", "._a.geojson"):
        (folder / "annotations" / name).write_bytes(b"\0\1")
    (folder / "annotations/old").mkdir()
    dataset = read(folder)
    assert len(dataset.table) == 4
    (line,) = dataset.warnings
    assert "annotations: 4 files without the ending .geojson or .xml left out: " in line
    for name in ("Thumbs.db", "a.geojson~", "b.geojson.bak", "old"):
        assert repr(name) in line
    table, notes = own.whole_slides(folder)
    assert notes == [line]
    assert table["annotation"].tolist() == [str(folder / "annotations/a.geojson"), ""]


def test_other_files_alone_are_named_where_labels_are_asked_for(folder: Path) -> None:
    (folder / "annotations").mkdir()
    (folder / "annotations/a.json").write_text("{}")
    assert not own.is_labeled(folder)
    assert "'a.json'" in own.whole_slides(folder)[1][0]


@pytest.mark.parametrize("make", [lambda path: path.write_text("x"), lambda path: path.symlink_to(path.name)])
@pytest.mark.parametrize("name", ["annotations", "coordinates"])
def test_what_should_be_a_folder_and_is_none_is_one_line(
    folder: Path, name: str, make: Callable[[Path], object]
) -> None:
    make(folder / name)
    with pytest.raises(ValueError, match=f"{name}: cannot be read as a folder") as caught:
        (own.whole_slides if name == "annotations" else own.pretraining_slides)(folder)
    assert "\n" not in str(caught.value)


def test_files_of_points_alone_of_cells_alone_and_of_nothing_stop_no_other(folder: Path) -> None:
    slides = (folder / "slides.csv").read_text().replace("train", "").replace("test", "")
    more = "".join(f"{name},a.tif,{name},,\n" for name in "cde")
    (folder / "slides.csv").write_text(slides + more)
    write_annotations(folder / "annotations/a.geojson", [TUMOR])
    place = '<Coordinate Order="0" X="200" Y="100" />'
    (folder / "annotations/b.xml").write_text(ASAP.format(DOTS.format(place)))
    (folder / "annotations/c.xml").write_text(ASAP.format(""))
    (folder / "annotations/d.geojson").write_text('{"type": "FeatureCollection", "features": []}')
    cells = [Region(np.array([(y, 9), (y, 15), (y + 6, 15)], float), label="immune") for y in (9, 40)]
    write_annotations(folder / "annotations/e.geojson", cells)
    dataset = read(folder)
    assert dataset.table["slide_id"].tolist() == ["a"] * 4 + ["b"]
    (point,) = dataset.table[["y", "x"]].to_numpy().tolist()[4:]
    assert point == [100, 200]
    empty, barren = dataset.warnings
    assert "2 files without annotation left out" in empty
    assert "e.geojson: no place" in barren
    assert "region 1 (immune, " in barren
    assert "region 2 (immune, " in barren


@pytest.mark.parametrize(("slide_id", "stem"), [(COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED)])
def test_files_are_found_whichever_spelling_of_accents_their_disk_has(
    folder: Path, slide_id: str, stem: str
) -> None:
    assert slide_id != stem
    table = (folder / "slides.csv").read_text().replace("\na,", f"\n{slide_id},")
    (folder / "slides.csv").write_text(table)
    write_annotations(folder / f"annotations/{stem}.geojson", [TUMOR])
    write_corners(folder / f"coordinates/{stem}_patches.h5")
    assert set(read(folder).table["slide_id"]) == {slide_id}
    assert own.whole_slides(folder)[0]["annotation"].tolist() == [
        str(folder / f"annotations/{stem}.geojson"),
        "",
    ]
    assert own.pretraining_slides(folder)["coordinates"].tolist() == [
        str(folder / f"coordinates/{stem}_patches.h5")
    ]
    write_annotations(folder / f"annotations/{slide_id}.geojson", [TUMOR])
    with pytest.raises(ValueError, match="a second file for slide"):
        read(folder)


def write_corners(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    with h5py.File(path, "w") as file:
        file["coords"] = np.array([(x, y) for x in range(96, 384, 40) for y in range(96, 384, 40)])
        file["coords"].attrs["patch_size_level0"] = 64


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_own_project()


@pytest.mark.usefixtures("project")
def test_coordinates_as_trident_names_them_are_pretrained_on() -> None:
    write_corners(OWN / "coordinates/s0_patches.h5")
    assert main(["index"]) == 0
    centers = pd.read_csv("data/index/centers.csv").query("slide_id == 's0'")
    assert len(centers) > 0
    assert ((centers[["y", "x"]].to_numpy() - 128) % 40 == 0).all()


def test_a_slide_called_as_tridents_files_are_has_its_own(folder: Path) -> None:
    with (folder / "slides.csv").open("a") as file:
        file.write("a_patches,a.tif,anna,,train\n")
    write_corners(folder / "coordinates/a_patches.h5")
    assert own.pretraining_slides(folder)["coordinates"].map(bool).tolist() == [False, True]
    write_corners(folder / "coordinates/a.h5")
    assert own.pretraining_slides(folder)["coordinates"].map(bool).tolist() == [True, True]


def _not_json() -> str:
    (OWN / "annotations/s2.geojson").write_text("{")
    return "s2.geojson: not JSON"


def _two_answers() -> str:
    edit(OWN / "patches.csv", lambda text: text + text.splitlines()[1].replace("tumor", "normal") + "\n")
    edit(OWN / "patches.csv", lambda text: text + text.splitlines()[1].replace("normal", "tumor") + "\n")
    return "two labels or scores"


def _leak() -> str:
    shutil.copy(OWN / "s0.tif", OWN / "s5.tif")
    return "s5"


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("spoil", [_not_json, _two_answers, _leak])
def test_what_was_left_out_is_logged_though_the_index_then_fails(
    spoil: Callable[[], str], capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    write_annotations(OWN / "annotations/s0.geojson", [TUMOR], [Point((9, 9))])
    (OWN / "annotations/Thumbs.db").write_text("x")
    (OWN / "annotations/s1.xml").write_text(ASAP.format(""))
    message = spoil()
    assert main(["index"]) == 1
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert message in line
    for left_out in (
        "'Thumbs.db'",
        "1 file without annotation left out",
        "1 regions or points have no class",
    ):
        assert sum(left_out in one for one in caplog.messages) == 1
