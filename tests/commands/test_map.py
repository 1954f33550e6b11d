"""The command `map` as a stranger calls it."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openslide
import pytest
import tifffile
import torch
import yaml

from histo_monai.models.checkpoint import save_model
from histo_monai.models.encoder import build_encoder
from histo_monai.models.task_model import TaskModel, describe_task_model
from histo_monai.pipeline.cli import main
from histo_monai.slides import SlideError
from histo_monai.slides.annotations import read_geojson
from histo_monai.utils.storage import claim, file_sha256
from histo_monai.utils.storage.seal import RECORD_SEAL, opened, sealed
from histo_monai.wsi.heatmaps.heatmap import read_heatmap
from histo_monai.wsi.heatmaps.tiff_map import read_map
from histo_monai.wsi.inference import heatmaps as heatmap_module
from tests.folders import NewFolder
from tests.slides.drawn_scn import Drawing

pytestmark = pytest.mark.slow

PATCH_PX, MPP = 32, 0.5
SUFFIXES = ("csv", "geojson", "json", "png", "tif")


def _write_slide(path: Path, mpp: float | None = MPP, seed: int | None = None) -> None:
    """Textured tissue, its right half empty."""
    random = np.random.default_rng(len(path.name) if seed is None else seed)
    pixels = (190, 110, 170) + 25 * random.normal(0, 1, (128, 192, 1)) * np.ones(3)
    pixels[:, 96:] = 245
    tags = {"resolution": (1e4 / mpp, 1e4 / mpp), "resolutionunit": "CENTIMETER"} if mpp else {}
    tifffile.imwrite(path, pixels.clip(0, 255).astype(np.uint8), tile=(64, 64), photometric="rgb", **tags)


def _write_model(path: Path, classes: list[str] | None, mpp: float | None = MPP, seed: int = 0) -> None:
    torch.manual_seed(seed)
    encoder = build_encoder().description(
        architecture="", head="linear", patch_px=PATCH_PX, mpps=[0.5, 1.0, 2.0]
    )
    encoder |= {"method": "random", "source": "raw", "corpus": "own"}
    model = TaskModel(build_encoder(), "linear", len(classes or "1"))
    about = describe_task_model(encoder, classes=classes, patch_px=PATCH_PX, mpp=mpp)
    save_model(path, model.state_dict(), about)


@pytest.fixture(scope="module")
def model(module_folder: NewFolder) -> Path:
    path = module_folder("model") / "model.safetensors"
    _write_model(path, ["normal", "tumor"])
    return path


@pytest.fixture
def folder(root: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder: params.yaml, a model, two slides."""
    shutil.copy(root / "params.yaml", tmp_path)
    for name in ("a.tif", "bb.tif"):
        _write_slide(tmp_path / name)
    for suffix in (".safetensors", ".json"):
        (tmp_path / model.name).with_suffix(suffix).symlink_to(model.with_suffix(suffix))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HISTO_MONAI_DEVICE", "cpu")
    return tmp_path


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the slides whose cells are looked at from now on."""
    names: list[str] = []
    original = heatmap_module.map_slide

    def spy(path: Path, *arguments: Any, **options: Any) -> Any:
        names.append(path.name)
        return original(path, *arguments, **options)

    monkeypatch.setattr(heatmap_module, "map_slide", spy)
    return names


def _map(*arguments: str) -> int:
    return main(["map", "--model", "model.safetensors", "--output", "maps", *arguments])


def _recommend(sha256: str) -> None:
    path = Path("data/models/chosen/chosen.json")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"model": "model.safetensors", "sha256": sha256, "why": "the only one"}))


def _refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert _map(*arguments) == 1
    (line,) = [
        line for line in capsys.readouterr().err.splitlines() if "error" in line or "Traceback" in line
    ]
    assert line.startswith("histo-monai map: error: ")
    return line


def _all(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_every_slide_gets_scores_a_map_an_overlay_and_detections(folder: Path) -> None:
    assert _map("a.tif", "bb.tif") == 0
    names = {path.name for path in (folder / "maps").iterdir()}
    assert names == {f"{name}.map.{suffix}" for name in ("a", "bb") for suffix in SUFFIXES}
    for name in ("a", "bb"):
        heatmap = read_heatmap(folder / f"maps/{name}.map.csv")
        assert heatmap.grid.stride_um == PATCH_PX * MPP
        assert heatmap.grid.shape == (4, 6)
        assert heatmap.cells[:, 1].max() <= 4  # Nothing is looked at where there is glass.
        assert 0 < heatmap.values["model"].min() < heatmap.values["model"].max() < 1
        read_geojson(folder / f"maps/{name}.map.geojson")
        assert (folder / f"maps/{name}.map.png").read_bytes().startswith(b"\x89PNG")
        with openslide.OpenSlide(folder / f"maps/{name}.map.tif") as opened:
            assert opened.dimensions == (6, 4)
            assert float(opened.properties["openslide.mpp-x"]) == PATCH_PX * MPP
        slide = json.loads((folder / f"maps/{name}.map.json").read_text())["slide"]
        assert slide["path"] == str(folder / f"{name}.tif")
        assert slide["size"] == (folder / f"{name}.tif").stat().st_size
        provenance = json.loads((folder / f"maps/{name}.map.json").read_text())["provenance"]
        assert {"git_commit", "git_dirty", "params_sha256", "inputs", "packages"} <= set(provenance)
        assert file_sha256(folder / "model.safetensors") in provenance["inputs"].values()


def test_a_map_of_a_slide_with_bounds_is_shown_by_qupath_where_it_lies(folder: Path) -> None:
    drawing = Drawing((384, 512), (500, 700), (1200, 1500), (500 + 200, 700 + 250), 120)
    drawing.write(folder / "c.scn")
    assert _map("c.scn") == 0
    heatmap = read_heatmap(folder / "maps/c.map.csv")
    assert heatmap.grid.bounds_yx == (500, 700)
    about = json.loads((folder / "maps/c.map.json").read_text())
    assert (about["origin"], about["bounds_yx"]) == ("canvas", [500, 700])
    centers = heatmap.grid.centers_yx(heatmap.cells)
    assert (np.hypot(*(centers - drawing.center_yx).T) < 1.4 * 120 + 32).all()
    content = json.loads((folder / "maps/c.map.geojson").read_text())
    assert content["histo_monai"] == {"origin": "bounds", "bounds_xy": [700, 500]}
    shown = [one["geometry"]["coordinates"] for one in content["features"]]
    corners = np.concatenate(
        [np.reshape(np.concatenate([np.ravel(ring) for ring in one]), (-1, 2)) for one in shown]
    )
    # Regions lie along the cells that were looked at: in QuPath's image of the bounds these begin at (-700, -500).
    edges = (corners[:, ::-1] + (500, 700)) / heatmap.grid.downsample
    is_corner = np.abs(edges - np.rint(edges)).max(axis=1) < 1e-6
    assert is_corner.sum() >= 4
    assert (np.hypot(*(corners - (250, 200)).T) < 1.4 * 120 + 64).all()
    with tifffile.TiffFile(folder / "maps/c.map.tif") as tiff:
        assert json.loads(tiff.pages.first.description) == {"origin": "canvas", "bounds_xy": [700, 500]}
    assert read_map(folder / "maps/c.map.tif")[0].shape == heatmap.grid.shape


def test_a_map_that_does_not_state_its_bounds_is_made_again_where_the_slide_has_any(
    folder: Path, looked_at: list[str]
) -> None:
    Drawing((256, 256), (50, 70), (400, 500), (180, 200), 80).write(folder / "c.scn")
    assert _map("a.tif", "c.scn") == 0
    for name in ("a", "c"):
        path = folder / f"maps/{name}.map.json"
        about = opened(json.loads(path.read_text()), RECORD_SEAL)
        assert about is not None
        del about["made_from"]["bounds_yx"], about["bounds_yx"], about["origin"]
        path.write_text(json.dumps(sealed(about, RECORD_SEAL)))
    assert _map("a.tif", "c.scn") == 0
    assert looked_at == ["a.tif", "c.scn", "c.scn"]


def test_slides_that_are_mapped_already_are_not_mapped_again(folder: Path, looked_at: list[str]) -> None:
    assert _map("a.tif") == 0
    before = _all(folder / "maps")
    assert _map("a.tif", "bb.tif") == 0
    assert looked_at == ["a.tif", "bb.tif"]
    after = _all(folder / "maps")
    assert {name: after[name] for name in before} == before
    assert _map("a.tif", "bb.tif") == 0
    assert len(looked_at) == 2
    assert _all(folder / "maps") == after


def test_maps_lie_beside_slides_and_annotations_and_touch_neither(folder: Path) -> None:
    """The data loss of old: `a.tif` became its own map, and the pathologist's `a.geojson` was replaced."""
    for suffix in ("csv", "geojson", "json", "png"):
        (folder / f"a.{suffix}").write_text("a pathologist's")
    before = _all(folder)
    assert _map("a.tif", "--output", ".") == 0
    after = _all(folder)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {f"a.map.{suffix}" for suffix in SUFFIXES}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_somebody_has_put_in_the_place_of_a_map_is_not_overwritten(
    folder: Path, capsys: pytest.CaptureFixture[str], looked_at: list[str], suffix: str
) -> None:
    (folder / "maps").mkdir()
    mine = folder / f"maps/bb.map.{suffix}"
    mine.write_text('{"files": {}}')
    line = _refused(capsys, "a.tif", "bb.tif")
    assert f"maps/bb.map.{suffix}: exists, and this command did not write it" in line
    assert mine.read_text() == '{"files": {}}'
    assert (looked_at, [path.name for path in (folder / "maps").iterdir()]) == ([], [mine.name])


def test_a_map_that_somebody_worked_on_is_not_overwritten(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _map("a.tif") == 0
    drawn = folder / "maps/a.map.geojson"
    drawn.write_text(drawn.read_text() + "\n")
    before = _all(folder / "maps")
    assert "maps/a.map.geojson: was changed since" in _refused(capsys, "a.tif", "--stride-um", "8")
    assert _all(folder / "maps") == before


def test_links_to_a_slide_in_the_place_of_its_map_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "maps").mkdir()
    before = (folder / "a.tif").read_bytes()
    for make in (os.symlink, os.link):
        make(folder / "a.tif", "maps/a.map.tif")
        assert "maps/a.map.tif: is the input a.tif by another name" in _refused(capsys, "a.tif")
        (folder / "maps/a.map.tif").unlink()
    assert (folder / "a.tif").read_bytes() == before


def test_a_map_is_no_slide(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _map("a.tif") == 0
    line = _refused(capsys, "maps/a.map.tif")
    assert "maps/a.map.tif: this name is a map's, not a slide's. Fix: give slides" in line


def _another_slide(folder: Path) -> list[str]:
    _write_slide(folder / "a.tif", seed=99)
    return []


def _another_model(folder: Path) -> list[str]:
    for path in (folder / "model.safetensors", folder / "model.json"):
        path.unlink()
    _write_model(folder / "model.safetensors", ["normal", "tumor"], seed=1)
    return []


def test_a_map_of_other_inputs_is_made_again_and_the_log_states_it(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert _map("a.tif") == 0
    changes: list[tuple[Callable[[Path], list[str]], str]] = [
        (_another_slide, "the slide's content differs"),
        (_another_model, "the model differs"),
        (lambda folder: ["--mpp", "0.4"], "the slide's µm/px was 0.5, now 0.4"),
        (lambda folder: ["--stride-um", "8"], "stride_um was 16.0, now 8.0"),
        (lambda folder: ["--positive-class", "normal"], "the classes were ['tumor'], now ['normal']"),
    ]
    more: list[str] = []
    for change, message in changes:
        before = read_heatmap(folder / "maps/a.map.csv").values["model"]
        more += change(folder)
        caplog.clear()
        assert _map("a.tif", *more) == 0
        assert f"a.tif mapped again: {message}\n" in caplog.text
        assert not np.array_equal(read_heatmap(folder / "maps/a.map.csv").values["model"], before)
    assert _map("a.tif", *more, "--output", "fresh") == 0
    for suffix in SUFFIXES:
        made = [(folder / name / f"a.map.{suffix}").read_bytes() for name in ("maps", "fresh")]
        assert made[0] == made[1]


def test_a_slide_that_was_moved_or_copied_is_the_same_slide(folder: Path, looked_at: list[str]) -> None:
    assert _map("a.tif") == 0
    (folder / "elsewhere").mkdir()
    shutil.copyfile("a.tif", "elsewhere/a.tif")
    (folder / "a.tif").unlink()
    assert _map("elsewhere/a.tif") == 0
    assert looked_at == ["a.tif"]


def test_pictures_alone_are_made_again_where_only_they_are_missing_or_to_look_otherwise(
    folder: Path, looked_at: list[str]
) -> None:
    assert _map("a.tif") == 0
    first = _all(folder / "maps")
    (folder / "maps/a.map.png").unlink()
    assert _map("a.tif") == 0
    content = {name: bytes_ for name, (_, bytes_) in _all(folder / "maps").items()}
    assert content == {name: bytes_ for name, (_, bytes_) in first.items()}
    params = yaml.safe_load((folder / "params.yaml").read_text())
    params["heatmap"]["region_threshold"] = 0.99
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    assert _map("a.tif") == 0
    assert (folder / "maps/a.map.csv").read_bytes() == first["a.map.csv"][1]
    assert (folder / "maps/a.map.geojson").read_bytes() != first["a.map.geojson"][1]
    assert looked_at == ["a.tif"]


def test_a_call_that_ended_early_goes_on_after_its_last_slide_and_ends_in_the_same_bytes(
    folder: Path, looked_at: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _map("a.tif", "bb.tif", "--output", "whole") == 0
    spied = heatmap_module.map_slide

    def stop(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.name == "bb.tif":
            raise KeyboardInterrupt
        return spied(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(heatmap_module, "map_slide", stop)
        assert _map("a.tif", "bb.tif") == 130
    unfinished = folder / "maps/.map.unfinished"
    assert {path.name for path in unfinished.iterdir()} == {"a.map.csv", "a.map.json"}
    (unfinished / ".bb.map.draft.csv").write_text("half of")  # As a kill would leave it.
    looked_at.clear()
    assert _map("a.tif", "bb.tif") == 0
    assert looked_at == ["bb.tif"]
    assert {name: content for name, (_, content) in _all(folder / "maps").items()} == {
        name: content for name, (_, content) in _all(folder / "whole").items()
    }
    assert not unfinished.exists()


def test_a_slide_that_changes_while_it_is_mapped_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = heatmap_module.map_slide

    def replace(*arguments: Any, **options: Any) -> Any:
        values = original(*arguments, **options)
        _write_slide(folder / "a.tif", seed=99)
        return values

    monkeypatch.setattr(heatmap_module, "map_slide", replace)
    assert "a.tif: the file changed during processing" in _refused(capsys, "a.tif")
    assert not list((folder / "maps").glob("*.csv"))


def test_two_calls_into_one_folder_do_not_mix(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with claim(folder / "maps", folder / "maps/.map.lock", replaces=False):
        line = _refused(capsys, "a.tif")
    assert f"maps: already being written, by process {os.getpid()}. Fix: wait for it, or end it" in line
    assert _map("a.tif") == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.tif"], "missing.tif: no such file"),
        (["bare.tif"], "bare.tif: states no resolution"),
        (["bare.tif"], "--mpp gives it for all slides of a call, --manifest for each"),
        (["--manifest", "none.csv"], "none.csv: no such file"),
        (["a.tif", "other/a.tif"], "a.tif: equal name as"),
        (["a.tif", "other/A.tif"], "equal name as"),
        (
            ["a.tif", "--positive-class", "cyst"],
            "class 'cyst' is unknown. Fix: name one of normal, tumor",
        ),
        (["a.tif", "--model", "none.safetensors"], "none.safetensors: no such model"),
        (["a.tif", "--model", "silent.safetensors"], "no µm/px, as it was trained"),
        (["a.tif", "--model", "tissues.safetensors", "--positive-class", "x"], "is unknown. Fix"),
        (["a.tif", "--output", "a.tif"], "a.tif: is a file, but a folder is needed"),
        (["a.tif", "--output", "loop/maps"], "loop: is a broken link"),
        (["a.tif", "--output", "occupied"], "occupied/.map.unfinished: is a link to"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_mapped(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    _write_slide(folder / "bare.tif", mpp=None)
    for name in ("other", "occupied"):
        (folder / name).mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "occupied/.map.unfinished").symlink_to("..")
    shutil.copy("a.tif", "other/a.tif")
    shutil.copy("a.tif", "other/A.tif")
    if "silent.safetensors" in arguments:
        _write_model(folder / "silent.safetensors", ["normal", "tumor"], mpp=None)
    if "tissues.safetensors" in arguments:
        _write_model(folder / "tissues.safetensors", ["fat", "muscle"])
    before = _all(folder)
    assert message in _refused(capsys, *arguments).replace("other/", "")
    assert _all(folder) == before
    assert not (folder / "maps").exists()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        *(
            ("--stride-um", value, "Fix: set a positive number of µm, at most 100000")
            for value in ("0", "-1", "inf", "nan", "1e300")
        ),
        ("--stride-um", "1e-6", "set stride_um to 0.5"),
        ("--stride-um", "10.3", "set stride_um to 10.5"),
        *(
            ("--mpp", value, "µm/px is implausible. Fix: give 0.05 to 20")
            for value in ("0", "-1", "inf", "nan")
        ),
    ],
)
def test_a_number_that_cannot_be_meant_is_refused_before_a_slide_is_opened(
    folder: Path, capsys: pytest.CaptureFixture[str], option: str, value: str, message: str
) -> None:
    line = _refused(capsys, "missing.tif", f"{option}={value}")
    assert option in line
    assert message in line
    assert not (folder / "maps").exists()


def test_a_grid_beyond_memory_is_refused_before_it_is_made(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("histo_monai.slides.tiles.grid.MOST_CELLS", 10**4)
    line = _refused(capsys, "a.tif", "--stride-um", "0.5")
    assert "slide a.tif: stride_um: 0.5 makes 2.5e+04 cells" in line
    assert "raise it to 0.784 or more" in line
    assert not (folder / "maps").exists()


def test_a_call_that_failed_stands_in_the_way_of_none(folder: Path) -> None:
    assert _map("a.tif", "--stride-um", "10.3") == 1
    assert _map("a.tif") == 0


def test_maps_of_another_model_or_stride_do_not_mix(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _map("a.tif") == 0
    before = _all(folder / "maps")
    line = _refused(capsys, "bb.tif", "--stride-um", "8")
    assert "a.map.json stride_um was 16.0, now 8.0. Fix: name another folder" in line
    _another_model(folder)
    assert "a.map.json the model differs" in _refused(capsys, "bb.tif")
    assert _all(folder / "maps") == before
    assert _map("a.tif", "bb.tif", "--stride-um", "8") == 0  # Both anew.


def test_a_score_is_mapped_as_it_is(folder: Path) -> None:
    for path in (folder / "model.safetensors", folder / "model.json"):
        path.unlink()
    _write_model(folder / "model.safetensors", None)
    assert _map("a.tif", "--stride-um", "8") == 0
    assert read_heatmap(folder / "maps/a.map.csv").grid.shape == (8, 12)


def test_maps_of_several_classes_are_a_file_each_and_regions_of_each(folder: Path) -> None:
    for path in (folder / "model.safetensors", folder / "model.json"):
        path.unlink()
    classes = ["Adipose/fat", "adipose fat", "stroma"]
    _write_model(folder / "model.safetensors", classes)
    assert _map("a.tif", "--stride-um", "8") == 0
    names = {path.name for path in (folder / "maps").iterdir() if not path.name.startswith(".")}
    tifs = {"a.map.Adipose_fat.tif", "a.map.adipose_fat-2.tif", "a.map.stroma.tif"}
    assert names == {"a.map.csv", "a.map.json", "a.map.geojson", "a.map.png", *tifs}
    heatmap = read_heatmap(folder / "maps/a.map.csv")
    assert list(heatmap.values) == [f"model:{name}" for name in classes]
    np.testing.assert_allclose(np.sum(list(heatmap.values.values()), axis=0), 1, atol=1e-5)
    for tif, column in zip(sorted(tifs), heatmap.values, strict=True):
        raster, _ = read_map(folder / "maps" / tif)
        np.testing.assert_allclose(raster, heatmap.raster(column), atol=1 / 500)
    regions, points = read_geojson(folder / "maps/a.map.geojson")
    most = {column: heatmap.values[column].max() for column in heatmap.values}
    assert {region.label for region in regions} == {name for name in classes if most[f"model:{name}"] >= 0.5}
    assert not points
    assert _map("a.tif", "--stride-um", "8") == 0  # it knows them again


def test_a_slide_that_cannot_be_read_stops_no_other(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = heatmap_module.map_slide

    def of_a_damaged_file(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.name == "damaged.tif":
            raise SlideError(path, "a tile is damaged")
        return original(path, *arguments, **options)

    monkeypatch.setattr(heatmap_module, "map_slide", of_a_damaged_file)
    _write_slide(folder / "bare.tif", mpp=None)
    shutil.copy("a.tif", "damaged.tif")
    line = _refused(capsys, "missing.tif", "a.tif", "bare.tif", "damaged.tif", "bb.tif")
    assert "3 of 5 failed, the others are mapped: slide missing.tif: no such file" in line
    assert "slide bare.tif: states no resolution" in line
    assert "slide damaged.tif: a tile is damaged" in line
    assert {path.name for path in Path("maps").glob("*.csv")} == {"a.map.csv", "bb.map.csv"}


def test_slides_of_a_table_are_mapped_at_their_own_resolution(folder: Path, tmp_path: Path) -> None:
    (folder / "sub").mkdir()
    _write_slide(folder / "sub/bare.tif", mpp=None)
    shutil.copy("a.tif", "sub/c.tif")
    Path("sub/mine.csv").write_text("slide_id,path,mpp\nx,bare.tif,0.4\ny,c.tif,\n")
    assert _map("bb.tif", "--manifest", "sub/mine.csv") == 0
    mpps = {
        name: read_heatmap(folder / f"maps/{name}.map.csv").grid.slide_mpp for name in ("bare", "c", "bb")
    }
    assert mpps == {"bare": 0.4, "c": 0.5, "bb": 0.5}


def test_without_params_maps_are_those_of_the_committed_params(folder: Path) -> None:
    assert _map("a.tif") == 0
    (folder / "params.yaml").unlink()
    assert _map("a.tif", "--output", "bare") == 0
    for suffix in SUFFIXES[:2] + SUFFIXES[3:]:
        assert (folder / f"maps/a.map.{suffix}").read_bytes() == (
            folder / f"bare/a.map.{suffix}"
        ).read_bytes()
    record = json.loads((folder / "bare/a.map.json").read_text())
    assert record["provenance"]["params_sha256"] is None


def test_a_class_is_found_whatever_its_case(folder: Path) -> None:
    assert _map("a.tif", "--positive-class", "TUMOR") == 0
    assert read_heatmap(folder / "maps/a.map.csv").values.keys() == {"model"}


def test_without_a_model_the_recommended_one_maps(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["map", "a.tif", "--output", "maps"]
    assert main(arguments) == 1
    assert "chosen.json: no recommended model. Fix: run `dvc repro compare`" in capsys.readouterr().err
    _recommend(file_sha256(folder / "model.safetensors"))
    assert main(arguments) == 0
    record = json.loads((folder / "maps/a.map.json").read_text())
    assert _map("a.tif") == 0
    assert json.loads((folder / "maps/a.map.json").read_text()) == record  # mapped already, by the same model
