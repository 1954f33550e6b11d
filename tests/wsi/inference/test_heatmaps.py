from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
import pytest
import tifffile
import torch
from numpy.typing import NDArray
from torch import nn

from histo_monai.models.checkpoint import save_model
from histo_monai.models.encoder import build_encoder
from histo_monai.models.task_model import TaskModel
from histo_monai.slides import Box, SlideError, open_slide
from histo_monai.slides.tiles import blocks as blocks_module
from histo_monai.slides.tiles.grid import Grid
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.wsi.heatmaps.heatmap import Heatmap, read_heatmap, write_heatmap
from histo_monai.wsi.inference import heatmaps as heatmap_module
from histo_monai.wsi.inference import models as models_module
from histo_monai.wsi.inference.heatmaps import map_slide, map_slides
from histo_monai.wsi.inference.jobs import SlideJob
from histo_monai.wsi.inference.models import MapPlan, PatchModels, load_models, mapped_classes, values_of
from histo_monai.wsi.inference.slides import split_by_bytes
from tests.devices import ComputeIn
from tests.folders import NewFolder
from tests.ranks import fork_ranks, server

CPU = torch.device("cpu")
PINK = (210, 130, 180)
SETTINGS = MapPlan(32, 1.0, 16.0, TissueRules(8.0), 0.5, 50)


def _write_pyramid(path: Path, image: NDArray[np.uint8], factors: Sequence[int]) -> Path:
    """Levels of exact means over factor x factor pixels; their sizes are rounded down."""
    with tifffile.TiffWriter(path) as writer:
        for factor in factors:
            height, width = (size // factor for size in image.shape[:2])
            whole = image[: height * factor, : width * factor]
            level = whole.reshape(height, factor, width, factor, 3).mean(axis=(1, 3)).round().astype(np.uint8)
            writer.write(level, tile=(64, 64), photometric="rgb", subfiletype=int(factor > 1), metadata=None)
    return path


class Centroids(nn.Module):
    """How much darker than the tissue a patch is in all, and where the middle of what is darker lies in it, 0..1."""

    def forward(self, patches: torch.Tensor) -> dict[str, torch.Tensor]:
        dark = (PINK[0] / 255 - patches[:, 0]).clamp(min=0.02) - 0.02
        mass = dark.sum(dim=(1, 2))
        place = (torch.arange(patches.shape[-1]) + 0.5) / patches.shape[-1]
        y, x = (dark.sum(dim=axis) @ place / mass.clamp(min=1e-6) for axis in (2, 1))
        return {name: value[:, None] for name, value in {"mass": mass / 1000, "in_y": y, "in_x": x}.items()}


CENTROIDS = PatchModels(("mass", "in_y", "in_x"), Centroids(), values_of(None, ()), ())


def _map(path: Path, mpp: float, models: PatchModels = CENTROIDS, **changes: int) -> Heatmap:
    return map_slide(path, mpp, models, SETTINGS, device=CPU, **{"workers": 0, **changes})


@pytest.mark.parametrize("factors", [(1, 2, 4), (1, 4, 16), (1, 3), (1,)], ids=str)
@pytest.mark.parametrize("mpp", [0.25, 0.2528, 0.5, 1.0])
def test_crosses_lie_where_they_were_planted_to_within_a_pixel_of_level_0(
    tmp_path: Path, mpp: float, factors: Sequence[int]
) -> None:
    image = np.full((round(260 / mpp), round(340 / mpp), 3), PINK, np.uint8)
    planted_um = [(61.0, 83.0), (101.0, 207.5), (150.5, 120.5), (195.25, 278.0)]
    arm, half = round(7 / mpp), max(1, round(1 / mpp))
    planted_px = [(round(y / mpp), round(x / mpp)) for y, x in planted_um]
    for y, x in planted_px:
        image[y - arm : y + arm, x - half : x + half] = 40
        image[y - half : y + half, x - arm : x + arm] = 40
    write_heatmap(tmp_path / "map.csv", _map(_write_pyramid(tmp_path / "slide.tif", image, factors), mpp))
    table = pd.read_csv(tmp_path / "map.csv")
    # Where each patch sees the cross: the middle of its cell, and how far from the middle of the patch the cross is.
    shift = (table[["in_y", "in_x"]].to_numpy() - 0.5) * SETTINGS.patch_px * SETTINGS.mpp / mpp
    seen = table[["y", "x"]].to_numpy() + shift
    whole = table["mass"] > 0.98 * table["mass"].max()
    for cross in planted_px:
        near = (np.abs(table[["y", "x"]].to_numpy() - cross) <= 8 / mpp).all(axis=1)
        assert (near & whole).any()
        assert np.abs(seen[near & whole] - cross).max() < 1


@pytest.fixture(scope="module")
def tissue(module_folder: NewFolder) -> Path:
    """Spotted tissue with glass around it, 512 x 640 px."""
    noise = np.random.default_rng(0).normal(0, 60, (512, 640, 1)).astype(np.float32)
    spots = PINK + 6 * cv2.GaussianBlur(noise, (0, 0), 3)[..., None]
    image = np.full((512, 640, 3), 245, np.uint8)
    image[60:460, 90:600] = np.clip(spots, 0, 230)[60:460, 90:600]
    return _write_pyramid(module_folder("tissue") / "tissue.tif", image, (1, 2))


def _save(path: Path, seed: int, classes: list[str] | None = None, **changes: object) -> Path:
    torch.manual_seed(seed)
    model = TaskModel(build_encoder(), "linear", len(classes or [0]))
    about = model.encoder.description(architecture="", head="linear", patch_px=32, mpps=[1.0])
    complete = {**about, **dict.fromkeys(("method", "source", "corpus"), "")}
    description = {"kind": "task model", "head": "linear", "classes": classes, "patch_px": 32, "mpp": 1.0}
    save_model(path, model.state_dict(), {**complete, **description, **changes})
    return path


@pytest.fixture(scope="module")
def files(module_folder: NewFolder) -> dict[str, Path]:
    folder = module_folder("models")
    names = {"finetuned": 0, "student": 1}
    return {
        name: _save(folder / f"{name}.safetensors", seed, ["normal", "tumor"]) for name, seed in names.items()
    }


def test_values_are_those_of_one_read_and_one_pass_for_every_cell(
    tissue: Path, files: dict[str, Path]
) -> None:
    models = load_models(files, ("tumor",), SETTINGS, CPU)
    result = _map(tissue, 0.5, models)
    assert len(result.cells) > 2 * SETTINGS.batch_size
    with open_slide(tissue, 0.5) as slide, torch.no_grad():
        for i in range(0, len(result.cells), 7):
            y, x = (result.cells[i] + 0.5) * 16 / 0.5
            patch = torch.from_numpy(slide.read(Box((y, x), 32, 1.0)))[None].float() / 255
            for name, outputs in models.network(patch).items():
                assert result.values[name][i] == pytest.approx(float(outputs.softmax(1)[0, 1]), abs=1e-5)


def test_values_stand_at_the_cells_of_their_patches_whatever_the_blocks(
    tissue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks_module, "_SOURCE_PX", 300)
    result = _map(tissue, 0.5)
    with open_slide(tissue, 0.5) as slide:
        boxes = [Box((y, x), 32, 1.0) for y, x in result.grid.centers_yx(result.cells).tolist()]
        expected = Centroids()(torch.from_numpy(slide.read_many(boxes)).float() / 255)
    for name, values in expected.items():
        np.testing.assert_allclose(result.values[name], values[:, 0].clamp(0, 1), atol=1e-5)


def test_a_reading_process_changes_no_byte(tissue: Path) -> None:
    alone, beside = _map(tissue, 0.5), _map(tissue, 0.5, workers=1)
    for name, values in alone.values.items():
        np.testing.assert_array_equal(beside.values[name], values)


def test_a_map_in_bfloat16_on_a_device_is_that_of_the_cpu_in_float32(
    tissue: Path, files: dict[str, Path], device: torch.device, compute_in: ComputeIn
) -> None:
    on_cpu = _map(tissue, 0.5, load_models(files, ("tumor",), SETTINGS, CPU))
    compute_in(torch.bfloat16)
    models = load_models(files, ("tumor",), SETTINGS, device)
    there = map_slide(tissue, 0.5, models, SETTINGS, device=device, workers=1)
    np.testing.assert_array_equal(there.cells, on_cpu.cells)
    for name, values in on_cpu.values.items():
        np.testing.assert_allclose(there.values[name], values, atol=0.02)


def test_progress_counts_every_patch_once(tissue: Path) -> None:
    counts_of_batches: list[tuple[int, int]] = []
    result = map_slide(
        tissue,
        0.5,
        CENTROIDS,
        SETTINGS,
        device=CPU,
        workers=0,
        advance=lambda *counts: counts_of_batches.append(counts),
    )
    num = len(result.cells)
    assert [done for done, _ in counts_of_batches] == [50] * (num // 50) + [num % 50]
    assert {total for _, total in counts_of_batches} == {num}


def test_a_slide_without_tissue_has_a_map_without_cells(tmp_path: Path) -> None:
    blank = _write_pyramid(tmp_path / "blank.tif", np.full((200, 200, 3), 245, np.uint8), (1,))
    write_heatmap(tmp_path / "blank.csv", _map(blank, 1.0))
    result = read_heatmap(tmp_path / "blank.csv")
    assert len(result.cells) == 0
    assert list(result.values) == ["mass", "in_y", "in_x"]


@pytest.fixture
def jobs(tissue: Path, files: dict[str, Path], tmp_path: Path) -> list[SlideJob]:
    """Four slides, of different size on disk; one has a model of its own."""
    result = []
    for number in range(4):
        path = tmp_path / "slides" / f"{number}.tif"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(tissue.read_bytes() + b"\0" * number)
        models = files if number else {"student": files["student"]}
        result.append(SlideJob(f"slide.{number}", path, 0.5, models))
    return result


def _run(jobs: Sequence[SlideJob], folder: Path, ranks: int = 1) -> dict[str, bytes]:
    map_slides(jobs, SETTINGS, ("tumor",), folder, device=CPU, workers=0, ranks=ranks)
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_models_are_loaded_once_for_many_slides(
    jobs: list[SlideJob], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Path] = []
    read = models_module.from_task_model
    monkeypatch.setattr(models_module, "from_task_model", lambda path: (loaded.append(path), read(path))[1])
    _run(jobs[1:3], tmp_path / "maps")
    assert loaded == list(jobs[1].models.values())


@pytest.mark.slow
def test_two_processes_write_the_same_bytes_as_one(
    jobs: list[SlideJob], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork_ranks(monkeypatch)
    alone = _run(jobs, tmp_path / "alone")
    assert len(alone) == 8
    assert _run(jobs, tmp_path / "two", ranks=2) == alone


def _map_and_stop(jobs: Sequence[SlideJob], folder: Path) -> None:
    """However busy the machine is, the other slides are not mapped before the kill."""
    write = heatmap_module.write_heatmap

    def write_and_stop(*arguments: Any) -> None:
        write(*arguments)
        os.kill(os.getpid(), signal.SIGSTOP)

    heatmap_module.write_heatmap = write_and_stop
    _run(jobs, folder)


@pytest.mark.slow
def test_a_killed_run_goes_on_after_its_last_whole_slide_and_ends_in_the_same_bytes(
    jobs: list[SlideJob], tmp_path: Path
) -> None:
    whole = _run(jobs, tmp_path / "whole")
    folder = tmp_path / "killed"
    process = server().Process(target=_map_and_stop, args=(jobs, folder))
    process.start()
    while not list(folder.glob("slide*.json")):
        assert process.is_alive()
        time.sleep(0.005)
    process.kill()
    process.join()
    done = {path: path.stat().st_mtime_ns for path in folder.glob("slide*.json")}
    assert 1 <= len(done) < len(jobs)
    drafts = {path.name for path in folder.glob(".*.draft")}
    result = {name: content for name, content in _run(jobs, folder).items() if name not in drafts}
    assert result == whole
    assert all(path.stat().st_mtime_ns == before for path, before in done.items())


def test_only_what_was_made_from_something_else_is_mapped_again(
    jobs: list[SlideJob],
    files: dict[str, Path],
    tissue: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What a stage that is started again finds: a slide replaced, one touched, another model, all else as it was."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(heatmap_module, "map_slide", _stand_in)
    _run(jobs, tmp_path / "maps")
    jobs[0].path.write_bytes(tissue.read_bytes().replace(b"\xf5", b"\xf4") + b"\0" * 9)
    os.utime(jobs[1].path, (1, 1))
    jobs[2] = dataclasses.replace(jobs[2], models={**files, "student": files["finetuned"]})
    (tmp_path / "maps/slide.3.csv").unlink()
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "maps").iterdir()}
    again = _run(jobs, tmp_path / "maps")
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "maps").iterdir()}
    assert [name for name, time in after.items() if before.get(name) == time and name.endswith("csv")] == [
        "slide.1.csv"
    ]
    assert f"{jobs[0].path} processed again: the slide's content differs" in caplog.text
    assert f"{jobs[2].path} processed again: the model differs" in caplog.text
    assert "1.tif" not in caplog.text
    assert _run(jobs, tmp_path / "fresh") == again


def test_the_json_of_a_map_is_the_same_on_another_machine(
    jobs: list[SlideJob], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what decides the scores; neither where the slide lies nor when it was written."""
    monkeypatch.setattr(heatmap_module, "map_slide", _stand_in)
    first = _run(jobs[:1], tmp_path / "first")
    moved = jobs[0].path.rename(tmp_path / "moved.tif")
    os.utime(moved, (1, 1))
    assert _run([dataclasses.replace(jobs[0], path=moved)], tmp_path / "second") == first
    made_from = json.loads(first["slide.0.json"])["made_from"]
    assert made_from["slide_bytes"] == moved.stat().st_size
    assert made_from["slide_mpp"] == 0.5
    (model,) = jobs[0].models.values()
    assert made_from["model_sha256"] == {"student": hashlib.sha256(model.read_bytes()).hexdigest()}
    assert made_from["classes"] == ["tumor"]
    of_earlier_maps = {"patch_px": 32, "mpp": 1.0, "stride_um": 16.0, "tissue_mpp": 8.0}
    assert made_from["settings"] == of_earlier_maps | {"min_tissue_fraction": 0.5, "batch_size": 50}


def _stand_in(path: Path, mpp: float, models: PatchModels, *_: object, **__: object) -> Heatmap:
    """A map of one cell that is as bright as the file is large, without a look at it."""
    value = np.array([path.stat().st_size % 97 / 97], np.float32)
    grid = Grid(SETTINGS.stride_um, mpp, (512, 640))
    return Heatmap(
        grid, np.zeros((1, 2), np.int64), np.ones(1, np.float32), dict.fromkeys(models.names, value)
    )


def test_a_slide_that_cannot_be_read_stops_the_run_by_its_name_and_finished_ones_are_kept(
    jobs: list[SlideJob], tmp_path: Path
) -> None:
    jobs[0].path.write_bytes(jobs[0].path.read_bytes()[:2000])  # The smallest: it comes last.
    with pytest.raises(SlideError, match=r"slide .*0\.tif: ") as refused:
        _run(jobs, tmp_path / "maps")
    assert "\n" not in str(refused.value)
    names = {path.name for path in (tmp_path / "maps").iterdir()}
    assert names == {f"slide.{i}.{kind}" for i in (1, 2, 3) for kind in ("csv", "json")}


def test_large_slides_come_first_and_processes_get_equal_loads(tmp_path: Path) -> None:
    sizes = [5, 90, 40, 60, 30]
    jobs = [SlideJob(f"{size}", tmp_path / f"{size}", None, {}) for size in sizes]
    for size, job in zip(sizes, jobs, strict=True):
        job.path.write_bytes(bytes(size))
    assert [[job.slide_id for job in part] for part in split_by_bytes(jobs, 2)] == [
        ["90", "30"],
        ["60", "40", "5"],
    ]
    assert [job.slide_id for job in split_by_bytes(jobs, 1)[0]] == ["90", "60", "40", "30", "5"]


def test_a_map_shows_the_probability_of_its_class_or_the_score() -> None:
    outputs = torch.tensor([[0.0, 1.0], [2.0, -1.0]])
    of_a = torch.sigmoid(torch.tensor([-1.0, 3.0]))
    torch.testing.assert_close(values_of(["a", "b"], ("a",))(outputs), of_a[:, None])
    torch.testing.assert_close(
        values_of(["a", "b"], ("b", "a"))(outputs), torch.stack([1 - of_a, of_a], dim=1)
    )
    torch.testing.assert_close(values_of(None, ())(outputs[:, 1:]), torch.tensor([[1.0], [0.0]]))


@pytest.mark.parametrize(
    ("classes", "asked", "mapped"),
    [
        (["normal", "tumor"], None, ("tumor",)),
        (["Tumor", "normal"], None, ("Tumor",)),
        (["gland", "stroma"], None, ("gland", "stroma")),
        (["a", "b", "tumor"], None, ("a", "b", "tumor")),
        (["gland", "stroma"], "STROMA", ("stroma",)),
        (["a", "b", "c"], "b", ("b",)),
        (["a", "A"], "A", ("A",)),
        (None, None, ()),
    ],
)
def test_of_two_classes_one_is_mapped_and_of_more_all(
    classes: list[str] | None, asked: str | None, mapped: tuple[str, ...]
) -> None:
    assert mapped_classes(classes, asked) == mapped


@pytest.mark.parametrize(("classes", "asked"), [(["a", "b"], "c"), (["a", "A"], "á"), (None, "a")])
def test_a_class_that_is_none_is_not_mapped(classes: list[str] | None, asked: str) -> None:
    with pytest.raises(ValueError, match=f"class {asked!r} is unknown"):
        mapped_classes(classes, asked)


Build = Callable[[Path], dict[str, Path]]
CLASSES = ["normal", "tumor"]


@pytest.mark.parametrize(
    ("build", "mapped", "message"),
    [
        (
            lambda path: {"m": _save(path, 0, CLASSES)},
            ("cancer",),
            r"the classes \['cancer'\] requested.* \['normal', 'tumor'\]",
        ),
        (lambda path: {"m": _save(path, 0, CLASSES)}, (), "a score requested, but"),
        (
            lambda path: {"m": _save(path, 0)},
            ("tumor",),
            r"the classes \['tumor'\] requested, but the model outputs a score",
        ),
        (
            lambda path: {"m": _save(path, 0, CLASSES, patch_px=64)},
            ("tumor",),
            "trained on patches of 64 px at 1.0 µm/px",
        ),
        (
            lambda path: {"m": _save(path, 0, CLASSES, mpp=0.5)},
            ("tumor",),
            "trained on patches of 32 px at 0.5 µm/px",
        ),
        (
            lambda path: {
                "one": _save(path.with_stem("one"), 0, ["tumor", "x"]),
                "m": _save(path, 0, CLASSES),
            },
            ("tumor",),
            r"classes \['normal', 'tumor'\] differ from the previous model's \['tumor', 'x'\]",
        ),
    ],
)
def test_a_model_that_does_not_fit_is_refused_by_its_file(
    tmp_path: Path, build: Build, mapped: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=rf"m\.safetensors: .*{message}"):
        load_models(build(tmp_path / "m.safetensors"), mapped, SETTINGS, CPU)
