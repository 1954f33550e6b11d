"""`benchmarks/atlas.py`: an encoder with its card, as a version that DVC gives out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from histo_monai.models.checkpoint import load_model
from histo_monai.utils.storage import file_sha256
from tests.hostile.project import write_slide
from tests.pipeline.conftest import Shell

SMALL = ("patch_px=32", "encoder.side=32", "corpora.own.num_train=16", "corpora.own.num_validation=8")
SMALL_RECIPE = ("pretrain.rsp_moco.batch_size=8", "pretrain.rsp_moco.queue_size=16")


def _atlas(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, program, *words], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_version_of_the_encoder_is_had_with_its_card(root: Path, shell: Shell, tmp_path: Path) -> None:
    atlas, project = tmp_path / "atlas", tmp_path / "project"
    rows = ["slide_id,path,patient_id,mpp,mpp_known,organ"]
    for i in range(4):
        write_slide(atlas / f"s{i}.tif", seed=i)
        rows.append(f"s{i},s{i}.tif,P{i},1.0,yes,{('colon', 'skin')[i % 2]}")
    (atlas / "slides.csv").write_text("\n".join(rows) + "\n")
    changes = ["--seed", "1", "--set", *SMALL, *SMALL_RECIPE]
    done = _atlas(root / "benchmarks/atlas.py", str(project), "--atlas", str(atlas), *changes)
    assert done.returncode == 0, done.stderr
    encoder = project / "data/models/rsp_moco-1/encoder.safetensors"
    _, description = load_model(encoder)
    card = (project / "encoder.md").read_text()
    assert file_sha256(encoder) in card
    assert description["encoder"]["weights"]["sha256"] in card
    assert "4 cases: colon 2, skin 2." in card
    assert "| glas-classes |" in card
    assert "| lung |" in card
    assert "rsp-moco-1" not in card
    shell(f"dvc remote add -q -d storage {tmp_path / 'remote'}", project)
    publish = done.stdout.splitlines()[-1].strip()
    shell(publish.replace("dvc push", "dvc push -q"), project)
    shell(f"dvc artifacts get {project} encoder --rev v1.0.0 -o got", tmp_path)
    assert load_model(tmp_path / "got/encoder.safetensors")[1] == description
    assert (project / "encoder.md").read_text() in shell("git show encoder@v1.0.0:encoder.md", project)


def test_a_folder_without_slides_is_named(root: Path, tmp_path: Path) -> None:
    done = _atlas(root / "benchmarks/atlas.py", str(tmp_path / "project"), "--atlas", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == f"{tmp_path}: no slides.csv. Fix: name the folder of the atlas by --atlas\n"
    assert not (tmp_path / "project").exists()
