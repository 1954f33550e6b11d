"""`histo-monai features` as somebody uses it who has slides, an encoder, and files of his own."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import openslide
import pytest

from histo_monai.pipeline.cli import main
from histo_monai.wsi.inference.patch_features import FeatureFile
from tests.hostile.project import slide_pixels, write_slide
from tests.slides.drawn_scn import Drawing
from tests.wsi.inference.test_features import encoder_file as encoder_file  # a fixture


@pytest.fixture
def folder(tmp_path: Path, encoder_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two slides and an encoder, no params.yaml."""
    for number, name in enumerate(("a", "b")):
        write_slide(tmp_path / f"{name}.tif", number)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _features(*arguments: str) -> int:
    return main(["features", "--model", "encoder.safetensors", "--output", "out", *arguments])


def _last(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.strip().splitlines()[-1]


def test_each_slide_has_a_file_and_a_record_and_is_looked_at_once(folder: Path) -> None:
    assert _features("a.tif", "b.tif") == 0
    assert {path.name for path in (folder / "out").iterdir()} == {
        *("a.h5", "a.features.json", "b.h5", "b.features.json"),
    }
    record = json.loads((folder / "out/a.features.json").read_text())
    with h5py.File(folder / "out/a.h5") as file:
        assert file["features"].shape == (record["num_patches"], 512)
        assert file["coords"].attrs["mpp"] == 1.0
    before = {path: path.stat().st_mtime_ns for path in (folder / "out").iterdir()}
    assert _features("a.tif", "b.tif") == 0
    assert {path: path.stat().st_mtime_ns for path in (folder / "out").iterdir()} == before
    pixels = slide_pixels(0)
    pixels[100:300, 100:300] = 90
    write_slide(folder / "a.tif", pixels=pixels)
    assert _features("a.tif", "b.tif") == 0
    changed = {path.name for path, time in before.items() if path.stat().st_mtime_ns != time}
    assert changed == {"a.h5", "a.features.json"}


def test_patches_are_as_asked(folder: Path) -> None:
    assert _features("a.tif", "--patch-px", "64", "--patch-mpp", "2", "--stride-um", "64") == 0
    with h5py.File(folder / "out/a.h5") as file:
        about = dict(file["coords"].attrs)
        corners = file["coords"][:]
    assert (about["patch_size"], about["patch_size_level0"], about["overlap"]) == (64, 128, 32)
    assert about["target_magnification"] == 5.0
    assert set(np.diff(np.unique(corners[:, 0]))) == {64}


def test_corners_count_from_the_canvas_as_clam_and_trident_do(folder: Path) -> None:
    drawing = Drawing((384, 512), (500, 700), (1200, 1500), (500 + 200, 700 + 250), 120, 1.0)
    drawing.write(folder / "c.scn")
    assert _features("c.scn") == 0
    with h5py.File(folder / "out/c.h5") as file:
        about = dict(file["coords"].attrs)
        corners, side = file["coords"][:], int(about["patch_size_level0"])
        tissue = file["tissue"][:]
    stated = [about[name] for name in ("origin", "level0_bounds_x", "level0_bounds_y")]
    assert stated == ["canvas", 700, 500]
    with openslide.OpenSlide(folder / "c.scn") as slide:
        stained = []
        for x, y in corners.tolist():
            seen = np.asarray(slide.read_region((x, y), 0, (side, side)))
            stained.append(((seen[..., 3] > 0) & (seen[..., 1] < 200)).mean())
    assert np.abs(np.array(stained) - tissue).mean() < 0.12
    assert np.mean(stained) > 0.75
    with FeatureFile(folder / "out/c.h5") as file:
        assert file.read().grid.bounds_yx == (500, 700)


def test_a_table_names_slides_and_their_resolution(folder: Path) -> None:
    write_slide(folder / "c.tif", 3, None)
    (folder / "slides.csv").write_text("path,mpp\na.tif,\nc.tif,0.5\n")
    assert _features("--manifest", "slides.csv") == 0
    with h5py.File(folder / "out/c.h5") as file:
        assert file["coords"].attrs["level0_mpp"] == 0.5


def test_a_bad_slide_stops_no_other(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bad.tif").write_bytes(b"no slide")
    assert _features("a.tif", "bad.tif", "b.tif") == 1
    assert "slides: 1 of 3 failed, the others have features: slide bad.tif" in _last(capsys)
    assert {path.name for path in (folder / "out").glob("*.h5")} == {"a.h5", "b.h5"}


def test_no_file_of_a_user_is_written_over(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "out").mkdir()
    (folder / "out/a.h5").write_bytes(b"a user's")
    assert _features("a.tif") == 1
    assert "a.h5: exists, and this command did not write it" in _last(capsys)
    assert (folder / "out/a.h5").read_bytes() == b"a user's"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--patch-px", "5"), "--patch-px: 5 px is out of range. Fix: give 32 to 2048"),
        (("--patch-mpp", "0"), "--patch-mpp: 0 µm/px is implausible"),
        (("--stride-um", "-3"), "--stride-um: "),
        (("--model", "a.tif"), "a.json"),
    ],
)
def test_wrong_arguments_are_refused_in_a_line(
    arguments: tuple[str, ...], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _features("a.tif", *arguments) == 1
    assert message in _last(capsys)
    assert not (folder / "out").exists()


def test_without_a_slide_the_error_states_how_to_name_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        _features()
    assert "no slides. Fix: give slide files" in _last(capsys)
