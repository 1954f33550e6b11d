"""The command `verify`: what stages and maps left is what was written, and made from what lies here."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tifffile
import yaml

from histo_monai.pipeline.cli import main
from histo_monai.pipeline.params import load_params
from histo_monai.pipeline.provenance import made_from, write_metrics
from histo_monai.utils.storage import identify, sealed
from tests.folders import NewFolder
from tests.papers_way import in_the_papers_way

ENCODER = "data/models/random-0/encoder.safetensors"


def _slide(path: Path, seed: int) -> None:
    generator = np.random.default_rng(seed)
    pixels = np.full((512, 512, 3), 245, np.uint8)
    coarse = generator.integers(-40, 40, (48, 48, 1)).repeat(8, 0).repeat(8, 1)
    pixels[64:448, 64:448] = np.clip(np.array([200, 110, 170]) + coarse, 0, 255)
    tags: dict[str, Any] = {"resolution": (10_000, 10_000), "resolutionunit": "CENTIMETER"}
    tifffile.imwrite(path, pixels, tile=(256, 256), photometric="rgb", **tags)


@pytest.fixture(scope="module")
def finished(root: Path, module_folder: NewFolder) -> Iterator[Path]:
    """Slides of one's own, the index and an encoder, made by the stages; the module's working folder."""
    folder = module_folder("verify")
    params = in_the_papers_way(yaml.safe_load((root / "params.yaml").read_text()))
    params |= {
        "source": "raw",
        "dataset": "own",
        "pretraining_dataset": "own",
        "patch_px": 32,
        "pretraining_methods": ["random"],
    }
    params["corpora"]["own"] |= {"num_train": 8, "num_validation": 4}
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    raw = folder / "data/raw/own"
    raw.mkdir(parents=True)
    for number in range(2):
        _slide(raw / f"{number}.tif", number)
    table = pd.DataFrame({"slide_id": ["s0", "s1"], "path": ["0.tif", "1.tif"]})
    table.to_csv(raw / "slides.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HISTO_MONAI_DEVICE", "cpu")
        patch.setenv("HISTO_MONAI_CPUS", "1")
        assert main(["index"]) == 0
        assert main(["pretrain", "--method", "random"]) == 0
        yield folder


@pytest.fixture
def verify(finished: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command; its exit status and the findings that are not PASS."""

    def run(*folders: str) -> tuple[int, list[dict[str, str]]]:
        capsys.readouterr()
        status = main(["verify", *folders, "--json"])
        findings = json.loads(capsys.readouterr().out)
        return status, [finding for finding in findings if finding["status"] != "PASS"]

    return run


def _fails(findings: list[dict[str, str]]) -> list[dict[str, str]]:
    return [finding for finding in findings if finding["status"] == "FAIL"]


def test_untouched_results_pass_in_one_line_each(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith("0 FAIL")
    for name in (ENCODER, "data/models/random-0/metrics.json", "data/index/metrics.json"):
        assert [line for line in lines if line.startswith("PASS") and f" {name} " in f"{line} "], name
    (index,) = [line for line in lines if "data/index/metrics.json" in line]
    assert " files unchanged, 3 inputs unchanged" in index  # two slides and their manifest


def test_one_changed_byte_in_any_file_that_a_stage_wrote_is_found_by_its_name(
    finished: Path, verify: Any
) -> None:
    files = [path for folder in ("index", "models") for path in finished.glob(f"data/{folder}/**/*.*")]
    suffixes = {path.suffix for path in files}
    assert suffixes == {".csv", ".json", ".png", ".safetensors"}
    for path in files:
        content = path.read_bytes()
        place = len(content) // 2
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        status, findings = verify("data")
        path.write_bytes(content)
        named = [finding for finding in _fails(findings) if finding["what"].endswith(path.name)]
        assert status == 1, path
        assert named, path
        assert all(finding["remedy"] or "SHA-256" in finding["message"] for finding in named)
    assert verify("data")[0] == 0


def test_a_file_that_is_gone_and_one_that_nobody_wrote_are_named(finished: Path, verify: Any) -> None:
    curves, extra = finished / "data/models/random-0/curves.csv", finished / "data/index/notes.txt"
    content = curves.read_bytes()
    curves.unlink()
    extra.write_text("mine")
    status, findings = verify("data")
    curves.write_bytes(content)
    extra.unlink()
    assert status == 1
    (gone,) = _fails(findings)
    assert gone["what"] == "data/models/random-0/curves.csv"
    assert "missing" in gone["message"]
    assert [one for one in findings if one["status"] == "WARN" and "notes.txt" in one["message"]]


def test_a_slide_or_table_that_was_replaced_is_named_by_every_result_made_from_it(
    finished: Path, verify: Any
) -> None:
    slide = finished / "data/raw/own/1.tif"
    content = slide.read_bytes()
    _slide(slide, 7)
    status, findings = verify("data")
    assert status == 1
    what = {finding["what"] for finding in _fails(findings)}
    assert what == {"data/index/metrics.json", "data/models/random-0/metrics.json"}
    assert all("slide s1: made from a different" in finding["message"] for finding in _fails(findings))
    slide.unlink()
    status, findings = verify("data")
    assert status == 0
    assert [one for one in findings if "missing inputs, not compared: 1 (slide s1)" in one["message"]]
    slide.write_bytes(content)
    manifest = finished / "data/raw/own/slides.csv"
    before = manifest.read_text()
    manifest.write_text(before + "s2,0.tif\n")
    status, findings = verify("data/index")
    manifest.write_text(before)
    assert status == 1
    assert "made from a different data/raw/own/slides.csv" in _fails(findings)[0]["message"]


def test_other_params_are_a_warning(finished: Path, verify: Any) -> None:
    params = finished / "params.yaml"
    before = params.read_text()
    params.write_text(before.replace("alpha: 0.1", "alpha: 0.2"))
    status, findings = verify("data")
    params.write_text(before)
    assert status == 0
    assert [one["message"] for one in findings if one["what"] == "params.yaml"] == [
        "2 of 2 records made with different params; `dvc status` lists stages to run again, if any"
    ]


def test_two_runs_of_one_commit_agree_to_the_last_byte_records_and_all(finished: Path) -> None:
    files = sorted(path for path in finished.glob("data/models/random-0/*"))
    before = {path.name: path.read_bytes() for path in files}
    assert set(before) >= {"encoder.json", "metrics.json", "summary.json"}
    assert main(["pretrain", "--method", "random"]) == 0
    assert {path.name: path.read_bytes() for path in files} == before


def test_results_are_verified_from_elsewhere_and_without_their_inputs(
    finished: Path, verify: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(finished / "data/models", tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    status, findings = verify("models")
    assert status == 0
    assert [one for one in findings if "missing inputs, not compared: 4" in one["message"]]
    assert verify(str(finished / "data"))[0] == 0


@pytest.mark.parametrize("suffix", [".tif", ".geojson", ".png", ".csv", ".json"])
def test_one_changed_byte_in_a_folder_of_maps_is_found(
    suffix: str, finished: Path, verify: Any, tmp_path: Path
) -> None:
    slide = finished / "data/raw/own/0.tif"
    files = {f"0.map{each}": bytes([100]) * 50 for each in (".tif", ".geojson", ".png", ".csv")}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    record: dict[str, Any] = {"slide": identify(slide).as_dict()}
    record["files"] = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    record["record_sha256"] = hashlib.sha256(json.dumps(record).encode()).hexdigest()
    (tmp_path / "0.map.json").write_text(json.dumps(record))
    assert verify(str(tmp_path)) == (0, [])
    changed = tmp_path / f"0.map{suffix}"
    content = changed.read_bytes()
    changed.write_bytes(content[:30] + bytes([content[30] ^ 1]) + content[31:])
    status, findings = verify(str(tmp_path))
    assert status == 1
    assert _fails(findings)[0]["what"] == str(changed)


def test_a_map_of_another_slide_fails(finished: Path, verify: Any, tmp_path: Path) -> None:
    slide = tmp_path / "a.tif"
    shutil.copy(finished / "data/raw/own/0.tif", slide)
    record: dict[str, Any] = {"slide": identify(slide).as_dict(), "files": {}}
    record["record_sha256"] = hashlib.sha256(json.dumps(record).encode()).hexdigest()
    (tmp_path / "a.map.json").write_text(json.dumps(record))
    shutil.copy(finished / "data/raw/own/1.tif", slide)
    status, findings = verify(str(tmp_path))
    assert status == 1
    assert "made from a different" in _fails(findings)[0]["message"]


def test_a_description_without_its_model_fails(finished: Path, verify: Any, tmp_path: Path) -> None:
    shutil.copy(finished / "data/models/random-0/encoder.json", tmp_path)
    status, findings = verify(str(tmp_path))
    assert (status, _fails(findings)[0]["message"]) == (1, "its model is missing")


def test_images_of_patches_that_were_replaced_are_noticed(
    root: Path, verify: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from histo_monai.data.tables.patches import labeled_table, write_patches

    monkeypatch.chdir(tmp_path)
    shutil.copy(root / "params.yaml", tmp_path)
    (tmp_path / "data/index").mkdir(parents=True)
    for name in "ab":
        (tmp_path / f"{name}.png").write_bytes(name.encode() * 9)
    patches = labeled_table([{"patch_id": n, "path": f"{n}.png", "side_px": 8} for n in "ab"])
    write_patches(tmp_path / "data/index/patches.csv", patches)
    write_metrics(tmp_path / "data/index", {}, made_from(load_params(Path("params.yaml")), images=patches))
    assert verify("data") == (0, [])
    (tmp_path / "b.png").write_bytes(b"c" * 9)
    status, findings = verify("data")
    assert (status, _fails(findings)[0]["message"]) == (
        1,
        "2 images of patches: at least one file has changed",
    )


@pytest.mark.parametrize(
    ("folder", "line"), [("none", "none: not found. Fix"), ("empty", "Fix: name a folder with results")]
)
def test_nothing_to_verify_is_one_line_and_no_success(
    folder: str, line: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (finished / "empty").mkdir(exist_ok=True)
    assert main(["verify", folder]) == 1
    captured = capsys.readouterr()
    assert line in captured.err
    assert captured.out == ""


def test_records_of_any_form_end_in_a_line(verify: Any, tmp_path: Path) -> None:
    odd = json.dumps(sealed({"files": [1]}, "record_sha256"))
    for content in ("", "{", "[1]", "{}", '{"record_sha256": 3, "files": []}', "[" * 100_000, "\0", odd):
        (tmp_path / "metrics.json").write_text(content)
        status, findings = verify(str(tmp_path))
        assert status == 1
        assert [one["what"] for one in _fails(findings)] == [str(tmp_path / "metrics.json")]
