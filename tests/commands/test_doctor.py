"""The command `doctor`: each thing that can be wrong is planted, found, and comes with its remedy."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
import yaml

from histo_monai.pipeline import environment
from histo_monai.pipeline.cli import main
from histo_monai.pipeline.doctor import checks, disk, machine, pipeline, reading, versions
from histo_monai.pipeline.doctor.finding import Finding
from histo_monai.pipeline.params import Params, load_params

Look = Callable[[Callable[[Params | None], Iterable[Finding]]], list[Finding]]


@pytest.fixture
def project(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HISTO_MONAI_DEVICE", "cpu")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    shutil.copy(root / "params.yaml", tmp_path)
    (tmp_path / "data").mkdir()
    return tmp_path


@pytest.fixture
def params(project: Path) -> Params:
    return load_params(project / "params.yaml")


def _only(findings: Iterable[Finding], status: str) -> Finding:
    (result,) = [finding for finding in findings if finding.status == status]
    return result


def test_a_healthy_project_passes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    findings = {one["what"]: one for one in json.loads(capsys.readouterr().out)}
    for name in (
        "params.yaml",
        "environment",
        "disk",
        "dvc.lock",
        "packages",
        "memory",
        "cuCIM",
        "OpenSlide",
    ):
        assert findings[name]["status"] == "PASS", findings[name]
    assert {one["status"] for one in findings.values()} <= {"PASS", "WARN"}
    assert {path.name for path in project.iterdir()} == {"params.yaml", "data"}


def test_it_runs_without_params_dvc_and_a_project_and_each_finding_is_one_line(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "params.yaml").unlink()
    monkeypatch.setitem(sys.modules, "dvc", None)  # as if it were not installed
    monkeypatch.setattr(reading, "ask", lambda jobs: [{"backend": "x", "version": "1"} for _ in jobs])
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith(("PASS  ", "WARN  ", "FAIL  ")) for line in lines[:-1])
    assert [
        line
        for line in lines
        if line.startswith("WARN  params.yaml") and "make a project: histo-monai init FOLDER" in line
    ]
    assert [line for line in lines if line.startswith("WARN  dvc ") and "pip install dvc" in line]
    assert lines[-1].endswith("0 FAIL")


def test_a_check_that_breaks_is_a_fail_with_its_reason_and_the_others_run(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: Params | None) -> Iterable[Finding]:
        raise KeyError("no such\nthing")

    monkeypatch.setattr(checks, "CHECKS", {"broken": broken, "params.yaml": pipeline.params_file})
    assert main(["doctor"]) == 1
    first, second, counts = capsys.readouterr().out.splitlines()
    assert first.startswith("FAIL  broken")
    assert "KeyError" in first
    assert second.startswith("PASS  params.yaml")
    assert counts == "1 PASS, 0 WARN, 1 FAIL"


@pytest.fixture
def with_weights(project: Path) -> Callable[..., Params]:
    """Params that name a file of weights."""

    def make(sha256: str | None, weights: str = "data/weights/vit.safetensors") -> Params:
        path = project / "params.yaml"
        tree = yaml.safe_load(path.read_text())
        tree["encoder"] |= {"weights": weights, "sha256": sha256}
        path.write_text(yaml.safe_dump(tree))
        return load_params(path)

    return make


def test_the_file_of_weights_is_the_one_that_params_name(
    project: Path, with_weights: Callable[..., Params]
) -> None:
    file = project / "data/weights/vit.safetensors"
    file.parent.mkdir()
    file.write_bytes(b"abc")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, appendix B.1
    found = _only(pipeline.weights_file(with_weights(digest.upper())), "PASS")
    assert digest in found.message
    found = _only(pipeline.weights_file(with_weights("0" * 64)), "FAIL")
    assert found.message == (
        f"data/weights/vit.safetensors: SHA-256 is {digest}, but encoder.sha256 is {'0' * 64}"
    )
    assert "again" in found.remedy
    found = _only(pipeline.weights_file(with_weights(None)), "FAIL")
    assert found.remedy.startswith(f"set it to {digest}")


def test_a_file_of_weights_that_is_missing_or_of_another_kind_fails_with_the_remedy(
    project: Path, with_weights: Callable[..., Params], capsys: pytest.CaptureFixture[str]
) -> None:
    found = _only(pipeline.weights_file(with_weights(None, "data/notes.txt")), "FAIL")
    assert found.message == "data/notes.txt: not a weights file"
    assert found.remedy.startswith("use .safetensors")
    with_weights("0" * 64)
    assert main(["doctor"]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAIL")]
    assert "data/weights/vit.safetensors: cannot be read (No such file or directory)" in line
    assert line.endswith("put the file of encoder.weights there, or set it to null")


def test_without_a_file_of_weights_there_is_nothing_to_report(params: Params) -> None:
    assert params.encoder.weights is None
    assert list(pipeline.weights_file(params)) == []


def test_a_library_that_does_not_load_is_named_with_the_reason_and_both_are_a_fail(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = project / "hidden"
    (hidden / "cucim").mkdir(parents=True)
    (hidden / "cucim/__init__.py").write_text(
        "raise ImportError('libcufile.so.0: cannot open shared object')"
    )
    monkeypatch.setattr(
        reading, "_PROGRAM", f"import sys; sys.path.insert(0, {str(hidden)!r}); {reading._PROGRAM}"
    )
    result = {finding.what: finding for finding in reading.libraries(None)}
    assert result["cuCIM"].status == "WARN"
    assert "libcufile.so.0" in result["cuCIM"].message
    assert "OpenSlide" in result["cuCIM"].remedy
    assert result["OpenSlide"].status == "PASS"
    problem = {"problem": "none here"}
    monkeypatch.setattr(reading, "ask", lambda jobs: [problem for _ in jobs])
    result = {finding.what: finding for finding in reading.libraries(None)}
    assert {result["cuCIM"].status, result["OpenSlide"].status} == {"FAIL"}


def test_a_slide_that_kills_its_reader_is_a_line_and_the_next_is_read(
    project: Path, real_slides: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = "import os, signal; from histo_monai.pipeline.doctor import reading; was = reading._slide; "
    crash += "reading._slide = lambda job: os.kill(os.getpid(), signal.SIGSEGV) if 'bad' in job['path'] else was(job); "
    monkeypatch.setattr(reading, "_PROGRAM", crash + "reading.answer()")
    for name in ("bad.svs", "good.tif"):
        shutil.copy(real_slides / "cmu-1-small-region.svs", project / name)
    (project / "data/index").mkdir()
    rows = "slide_id,path,mpp\nb,bad.svs,\ng,good.tif,\n"
    (project / "data/index/slides.csv").write_text(rows)
    bad, good = reading.own_slides(None)
    assert (bad.status, bad.what) == ("FAIL", "slide .svs")
    assert bad.message == "bad.svs: the reading process crashed with signal 11"
    assert (good.status, good.message) == ("PASS", "good.tif: read by cucim")


def test_every_suffix_of_the_manifest_is_tried_once(project: Path, real_slides: Path) -> None:
    own = project / "data/raw/own"
    own.mkdir(parents=True)
    tifffile.imwrite(own / "damaged.tiff", np.zeros((8, 8), np.uint8))
    shutil.copy(real_slides / "cmu-1-small-region.svs", own / "a.svs")
    (own / "slides.csv").write_text("slide_id,path\na,a.svs\nb,damaged.tiff\nc,other.svs\n")
    svs, tiff = reading.own_slides(None)
    assert (svs.status, svs.message) == ("PASS", "data/raw/own/a.svs: read by cucim")
    assert (tiff.status, tiff.what) == ("FAIL", "slide .tiff")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "0 bytes"),
        (b"\0\0\0\0", "not YAML"),
        (b"schema: '2.0'\nstages:\n  one:\n    cmd: [", "not YAML"),
        (b"- 1\n", "no `schema`"),
        (b"\xff\xfe", "not YAML"),
    ],
)
def test_a_lock_file_that_dvc_refuses_fails_with_what_to_do(
    content: bytes, message: str, project: Path
) -> None:
    (project / "dvc.lock").write_bytes(content)
    finding = _only(pipeline.lock_file(None), "FAIL")
    assert message in finding.message
    assert "git checkout dvc.lock" in finding.remedy
    assert "rm dvc.lock" in finding.remedy


def test_a_sane_lock_file_and_none_pass(project: Path) -> None:
    assert _only(pipeline.lock_file(None), "PASS").message.startswith("does not exist yet")
    (project / "dvc.lock").write_text("schema: '2.0'\nstages:\n  one:\n    cmd: x\n")
    assert _only(pipeline.lock_file(None), "PASS").message == "1 stages"


def test_params_that_no_stage_would_take_fail_with_the_line_of_the_stage(project: Path) -> None:
    (project / "params.yaml").write_text("alpha: 1\n")
    finding = _only(pipeline.params_file(None), "FAIL")
    assert "missing key" in finding.message


def test_an_environment_variable_that_means_nothing_fails_and_an_unknown_one_is_reported(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HISTO_MONAI_WORKERS", "two")
    monkeypatch.setenv("HISTO_MONAI_WORKER", "2")
    findings = list(machine.environment(None))
    assert "HISTO_MONAI_WORKERS: 'two'" in _only(findings, "FAIL").message
    assert "HISTO_MONAI_WORKER: unknown variable" in _only(findings, "WARN").message


@pytest.mark.parametrize(
    ("words", "asked", "status", "message"),
    [
        ("flags\t\t: avx2 avx512_bf16", "", "PASS", "HISTO_MONAI_PRECISION=bfloat16"),
        ("Features\t: asimd bf16", "", "PASS", "HISTO_MONAI_PRECISION=bfloat16"),
        ("flags\t\t: avx2", "bfloat16", "WARN", "does not report it"),
        ("flags\t\t: avx2", "", None, ""),
        ("flags\t\t: avx512_bf16", "bfloat16", None, ""),
        ("flags\t\t: avx512_bf16", "half", None, ""),
    ],
)
def test_a_processor_with_bfloat16_is_reported_and_one_without_where_it_is_requested(
    words: str, asked: str, status: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{words}\n")
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("HISTO_MONAI_PRECISION", asked)
    found = [finding for finding in machine.device(None) if finding.what == "precision"]
    assert [finding.status for finding in found] == ([status] if status else [])
    assert all(message in finding.message for finding in found)


def test_every_variable_of_the_environments_table_is_known(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = re.findall(r"^\| (HISTO_MONAI_\w+) \|", str(environment.__doc__), flags=re.M)
    assert len(names) == 8
    words = {"HISTO_MONAI_DEVICE": "cpu", "HISTO_MONAI_PRECISION": "bfloat16", "HISTO_MONAI_DECODER": "cpu"}
    for name in names:
        monkeypatch.setenv(name, words.get(name, "1"))
    assert {finding.status for finding in machine.environment(None)} == {"PASS"}


def test_the_limit_of_a_container_counts(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "memory.max").write_text("300000000\n")
    (tmp_path / "memory.current").write_text("100000000\n")
    monkeypatch.setattr(machine, "CGROUP_LIMITS", (tmp_path / "memory.max",))
    assert machine.memory_free() == (200_000_000, "of the container's limit")
    assert "0.2 GB free (of the container's limit)" in _only(machine.memory(None), "WARN").message
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.memory_free()[1] == "of the machine"


def test_the_estimate_of_the_disk_counts_every_model_and_a_full_disk_fails(
    params: Params, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree: Any = yaml.safe_load((project / "params.yaml").read_text())
    runs = (
        len(tree["pretraining_methods"]) * len(tree["semisupervised_methods"]) * len(tree["training_seeds"])
    )
    in_folds = 2 * tree["cross_validation"]["num_folds"] * runs
    need, parts = disk.estimate(params)
    assert f"{len(tree['pretraining_methods']) + 2 * runs + in_folds} models" in parts
    usage = shutil.disk_usage(project)
    for factor, status in ((0.5, "FAIL"), (1.5, "WARN"), (3, "PASS")):
        free = int(need * factor)
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: usage._replace(free=free))
        assert _only(disk.space(params), status).message.startswith(f"{free / 1e9:.1f} GB free")
    (project / "data/models").mkdir()
    with (project / "data/models/a.bin").open("wb") as file:
        file.truncate(need)  # sparse: what is there already is not needed again
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=2**20))
    assert _only(disk.space(params), "PASS").message.endswith(f"{need / 1e9:.1f} GB exist")


def test_other_versions_than_those_pinned_are_a_warning(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses = [finding.status for finding in versions.packages(None)]
    assert statuses == ["PASS"]
    (project / "constraints.txt").write_text("numpy==0.1\nPandas==0.2\n# torch==1\n")
    finding = _only(versions.packages(None), "WARN")
    assert "constraints.txt: 0.1" in finding.message
    assert "pandas" in finding.message
    assert "torch" not in finding.message
