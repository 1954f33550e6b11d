"""The command line as a stranger meets it: bad input is one line, a non-zero exit, and nothing half-written."""

from __future__ import annotations

import copy
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import tifffile
import yaml

import histo_monai
from histo_monai.pipeline.arguments import COMMANDS, STAGES, build_parser
from histo_monai.pipeline.cli import _one_line, main
from histo_monai.slides import SlideError
from histo_monai.utils.errors import InputError
from tests.papers_way import in_the_papers_way

TINY = {
    "source": "raw",
    "dataset": "own",
    "pretraining_dataset": "own",
    "patch_px": 32,
    "corpora.own": {"mpps": [1.0, 2.0, 4.0], "num_train": 16, "num_validation": 8},
    "pretrain.rsp.epochs": 1,
    "pretrain.rsp.batch_size": 4,
}


@pytest.fixture
def project(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes a project's root with a params.yaml and goes there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HISTO_MONAI_CPUS", "1")
    monkeypatch.setenv("HISTO_MONAI_DEVICE", "cpu")

    def make(**changes: Any) -> Path:
        tree = in_the_papers_way(yaml.safe_load((root / "params.yaml").read_text()))
        for dotted, value in copy.deepcopy({**TINY, **changes}).items():
            *way, last = dotted.split(".")
            section = tree
            for key in way:
                section = section[key]
            section[last] = value
        (tmp_path / "params.yaml").write_text(yaml.safe_dump(tree))
        (tmp_path / "data/raw/own").mkdir(parents=True, exist_ok=True)
        return tmp_path

    return make


def _slide(path: Path, seed: int, resolution: bool = True, tissue: bool = True) -> str:
    """A pink, grainy square of tissue on white glass, 1 µm/px."""
    generator = np.random.default_rng(seed)
    pixels = np.full((1024, 1024, 3), 245, np.uint8)
    coarse = generator.integers(-40, 40, (96, 96, 1)).repeat(8, 0).repeat(8, 1)
    if tissue:
        pixels[128:896, 128:896] = np.clip(np.array([200, 110, 170]) + coarse, 0, 255)
    tags = {"resolution": (10_000, 10_000), "resolutionunit": "CENTIMETER"} if resolution else {}
    tifffile.imwrite(path, pixels, tile=(256, 256), photometric="rgb", **tags)
    return path.name


def _manifest(project: Path, rows: list[tuple[str, str, str]]) -> None:
    table = pd.DataFrame(rows, columns=["slide_id", "path", "mpp"])
    table.to_csv(project / "data/raw/own/slides.csv", index=False)


def _good_corpus(project: Path) -> None:
    folder = project / "data/raw/own"
    _manifest(project, [(f"s{i}", _slide(folder / f"{i}.tif", i), "") for i in range(3)])


def _left_behind(project: Path) -> set[str]:
    return {
        str(p.relative_to(project))
        for p in (project / "data").rglob("*")
        if p.is_file() and "raw" not in p.parts
    }


def _refused(capfd: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(argv) == 1
    lines = [line for line in capfd.readouterr().err.splitlines() if "error" in line or "Traceback" in line]
    assert len(lines) == 1
    assert lines[0].startswith(f"histo-monai {argv[0]}: error: ")
    return lines[0]


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


BAD_SLIDES: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (lambda path: (_slide(path, 9), _truncate(path)), "truncated"),
    "empty": (lambda path: path.write_bytes(b""), "empty"),
    "not an image": (lambda path: path.write_text("slide_id,path\n" * 100), "not"),
    "without resolution": (lambda path: _slide(path, 9, resolution=False), "column mpp"),
    "missing": (lambda path: None, "no such file"),
}


@pytest.mark.parametrize("kind", sorted(BAD_SLIDES))
def test_a_bad_slide_is_one_line_with_its_name_and_nothing_is_written(
    kind: str, project: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    here = project()
    make, message = BAD_SLIDES[kind]
    folder = here / "data/raw/own"
    make(folder / "bad.tif")
    _manifest(
        here,
        [
            ("s0", _slide(folder / "0.tif", 0), ""),
            ("s1", _slide(folder / "1.tif", 1), ""),
            ("b", "bad.tif", ""),
        ],
    )
    line = _refused(capfd, "index")
    assert "1 of 3 slides to pretrain on cannot be used" in line
    assert "bad.tif" in line
    assert message in line
    assert _left_behind(here) == set()


def test_a_blank_slide_is_a_bad_slide(
    project: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    here = project()
    _good_corpus(here)
    _slide(here / "data/raw/own/1.tif", 1, tissue=False)
    line = _refused(capfd, "index")
    assert "1.tif: no tissue found" in line


def test_bad_slides_can_be_skipped_but_are_listed(project: Callable[..., Path]) -> None:
    here = project(**{"index.skip_bad_slides": True})
    _good_corpus(here)
    _truncate(here / "data/raw/own/1.tif")
    assert main(["index"]) == 0
    skipped = pd.read_csv(here / "data/index/skipped.csv")
    assert skipped["slide_id"].tolist() == ["s1"]
    assert "1.tif" in skipped["problem"][0]
    assert pd.read_csv(here / "data/index/slides.csv")["slide_id"].tolist() == ["s0", "s2"]


def test_a_manifest_with_a_duplicate_id_is_one_line(
    project: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    here = project()
    _manifest(here, [("s0", "0.tif", ""), ("s0", "1.tif", "")])
    assert "slides.csv, row 3: slide_id 's0' is also in row 2" in _refused(capfd, "index")


def test_a_misspelled_key_is_one_line(
    project: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    project(**{"pretrain.rsp.batchsize": 3})
    assert "pretrain.rsp.batchsize: unknown key; did you mean 'batch_size'?" in _refused(capfd, "index")


def test_more_samples_than_the_tissue_has_room_for_are_refused(
    project: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    here = project(**{"corpora.own.num_train": 10**8})
    _good_corpus(here)
    assert "100000000 are requested" in _refused(capfd, "index")


def test_a_resolution_finer_than_the_slides_is_refused(
    project: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    here = project(**{"corpora.own.mpps": [0.25, 0.5, 1.0]})
    _good_corpus(here)
    line = _refused(capfd, "index")
    assert "3 of 3 slides" in line
    assert "0.25 µm/px" in line


def test_the_error_for_a_missing_corpus_states_its_folder(
    project: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    here = project()
    shutil.rmtree(here / "data")
    assert "data/raw/own: not found" in _refused(capfd, "index")


def test_an_unknown_method_and_a_missing_index_are_one_line(
    project: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    project()
    assert "known: random, pretrained, vae, moco, rsp" in _refused(capfd, "pretrain", "--method", "rps")
    assert "slides.csv: not found. Fix: run `dvc repro index`" in _refused(
        capfd, "pretrain", "--method", "rsp"
    )


@pytest.mark.parametrize("stage", ["finetune", "consistency", "evaluate", "heatmap", "aggregate", "suggest"])
@pytest.mark.parametrize("seed", ["7", "-1", str(10**20)])
def test_a_seed_that_params_do_not_ask_for_is_one_line_and_writes_nothing(
    stage: str, seed: str, project: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    here = project()
    line = _refused(capfd, stage, "--method", "rsp", f"--seed={seed}")
    assert line.endswith(
        f"--seed: {seed} is not in `training_seeds` [0] of params.yaml. Fix: add it there (0 to 2**32 - 1) "
        "[docs/params.md]"
    )
    assert _left_behind(here) == set()


def test_a_pipe_in_the_place_of_params_is_refused_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("params.yaml")
    assert "params.yaml: is a pipe, socket or device, not a file" in _refused(capfd, "index")


@pytest.mark.parametrize("text", ["1800.5", "-1", "0", "forever", "١٨٠٠", "9" * 5000])
def test_a_time_that_is_none_is_one_line(
    text: str,
    project: Callable[..., Path],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _good_corpus(project())
    monkeypatch.setenv("HISTO_MONAI_TIMEOUT_S", text)
    line = _refused(capfd, "pretrain", "--method", "rsp")
    assert "a whole number from 1 to 999999" in line
    assert len(line) < 200


def test_a_device_that_is_not_there_is_one_line(
    project: Callable[..., Path], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project()
    monkeypatch.setenv("HISTO_MONAI_DEVICE", "tpu")
    assert "HISTO_MONAI_DEVICE: 'tpu'" in _refused(capfd, "pretrain", "--method", "rsp")


def test_a_training_that_diverges_leaves_no_model(
    project: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    here = project(**{"pretrain.rsp.lr": 1e30})
    _good_corpus(here)
    assert main(["index"]) == 0
    assert "loss is nan" in _refused(capfd, "pretrain", "--method", "rsp")
    assert not (here / "data/models").exists()


def test_a_slide_that_breaks_after_the_index_is_one_line_also_from_a_worker(
    project: Callable[..., Path], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = project()
    _good_corpus(here)
    assert main(["index"]) == 0
    for number in range(3):
        _truncate(here / f"data/raw/own/{number}.tif")
    monkeypatch.setenv("HISTO_MONAI_WORKERS", "2")
    capfd.readouterr()
    assert ".tif" in _refused(capfd, "pretrain", "--method", "rsp")
    assert not (here / "data/models").exists()


@pytest.mark.slow
def test_two_runs_of_one_seed_with_0_and_2_workers_give_identical_bytes(
    project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = project(**{"pretrain.rsp.epochs": 2})
    _good_corpus(here)
    assert main(["index"]) == 0
    encoders = []
    for workers in ("0", "2"):
        monkeypatch.setenv("HISTO_MONAI_WORKERS", workers)
        assert main(["pretrain", "--method", "rsp"]) == 0
        encoders.append((here / "data/models/rsp-0/encoder.safetensors").read_bytes())
    assert encoders[0] == encoders[1]


def test_a_model_describes_itself(project: Callable[..., Path]) -> None:
    here = project()
    _good_corpus(here)
    assert main(["index"]) == 0
    assert main(["pretrain", "--method", "random"]) == 0
    folder = here / "data/models/random-0"
    assert {p.name for p in folder.iterdir()} == {
        "encoder.safetensors",
        "encoder.json",
        "metrics.json",
        "summary.json",
        "curves.csv",
        "answers.png",
    }
    description = json.loads((folder / "encoder.json").read_text())
    assert description["mpps"] == [1.0, 2.0, 4.0]
    assert description["encoder"] == {
        "name": "resnet18",
        "img_px": description["patch_px"],
        "num_features": 512,
        "mean": [0.5] * 3,
        "std": [0.5] * 3,
        "weights": None,
    }
    assert description["method"] == "random"
    assert description["params"]["rsp"]["lr"] == 0.01
    assert set(description) >= {"provenance", "corpus", "patch_px", "metrics"}
    state = safetensors.torch.load_file(folder / "encoder.safetensors")
    assert state["encoder.trunk.conv1.weight"].shape == (64, 3, 7, 7)
    assert not (here / "data/checkpoints/pretrain-random.pt").exists()


def test_the_command_of_a_stranger_in_an_empty_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "histo_monai", "index"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "histo-monai index: error: params.yaml: cannot be read (No such file or directory). Fix: "
        "run from the project's root, or make a project: histo-monai init FOLDER [docs/params.md]"
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("last_line", "message"),
    [
        (f"{SlideError.__module__}.SlideError: slide a.tif: truncated", "slide a.tif: truncated"),
        (f"{InputError.__module__}.InputError: a: b", "a: b"),
        (f"{InputError.__module__}.InputError: a\n  b: c", "a b: c"),
        ("FileNotFoundError", "FileNotFoundError"),
        ("ValueError: operands could not be broadcast together with shapes (3,) (4,)", None),
        ("KeyError: 'x'", None),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied", None),
    ],
)
def test_an_error_of_another_process_is_reported_if_the_input_caused_it(
    last_line: str, message: str | None
) -> None:
    text = "Caught X in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
    assert _one_line(RuntimeError(text + last_line)) == message


def test_a_training_prints_nothing_but_its_own(project: Callable[..., Path]) -> None:
    here = project()
    _good_corpus(here)
    code = (
        "import sys; from histo_monai.pipeline.cli import main; "
        "sys.exit(main(['index']) or main(['pretrain', '--method', 'random']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    own = (
        "slides:",
        "thumbnails:",
        "INFO histo_monai",
        "WARNING histo_monai.pipeline.stages.index: data/raw/own/patches.csv: not found",
    )
    assert [line for line in done.stderr.splitlines() if line and not line.startswith(own)] == []
    assert "INFO histo_monai.pipeline.stages.pretrain" in done.stderr
    assert {path.name for path in here.iterdir()} == {"data", "params.yaml"}


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out.strip() == f"histo-monai {histo_monai.__version__}"


@pytest.mark.parametrize("name", sorted({*STAGES, *COMMANDS}))
def test_the_example_of_each_help_is_a_call_that_parses(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([name, "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    words = shlex.split(printed.partition("example: python -m histo_monai ")[2])
    assert words[0] == name
    assert build_parser().parse_args(words).name == name


def test_a_shell_completes_stages_and_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--print-completion", "bash"])
    script = capsys.readouterr().out
    assert all(name in script for name in (*STAGES, *COMMANDS))


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["convert", "out"], {"outlines.xml", "outer"}),
        (["map", "a.svs", "--model", "out"], {"outlines.xml", "outer"}),
        (["map", "a.svs", "--output", "out"], {"outer"}),
        (["ver"], {"verify"}),
        (["init", "new", "--dataset", "kat"], {"kather"}),
    ],
)
def test_a_shell_completes_names_of_files(
    words: list[str], offered: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--print-completion", "bash"])
    (tmp_path / "completion").write_text(capsys.readouterr().out)
    (tmp_path / "outlines.xml").touch()
    (tmp_path / "outer").mkdir()
    script = (
        f"source ./completion; COMP_WORDS=(histo-monai {shlex.join(words)}); COMP_CWORD={len(words)}; "
        "_shtab_histo_monai; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == offered
