"""Features of labeled and unlabeled patches: encoded once, the same bytes however they are made."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from distributed import LocalCluster

from histo_monai.data.features.store import read_features
from histo_monai.data.features.tables import features_of_rows
from histo_monai.data.loaders.reader import PatchReader
from histo_monai.data.tables.patches import read_patches
from histo_monai.models.encoder import Encoder
from histo_monai.models.task_model import load_encoder
from histo_monai.pipeline.cli import main
from histo_monai.pipeline.params import load_params
from histo_monai.pipeline.stages.features import _link
from histo_monai.pipeline.stored_features import stored_features
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import file_sha256
from histo_monai.wsi.inference.encoding import Encoding
from tests.folders import NewFolder, work_in_copy
from tests.hostile.project import (
    OWN,
    STAGES,
    params_with,
    slide_pixels,
    with_cell,
    write_own_project,
    write_slide,
)
from tests.ranks import fork_ranks

CALL = ("features", "--method", "random")
FOLDER = Path("data/features/random-0")


@pytest.fixture(scope="module")
def encoded_once(module_folder: NewFolder) -> Path:
    """Own slides with labeled and unlabeled squares, a random encoder and its features; no test changes it."""
    folder = module_folder("features")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_own_project()
        params_with(labels__own__unlabeled=30, features__batchnorm_patches=0)()
        for call in (*STAGES[:2], CALL):
            assert main(call) == 0
    return folder


@pytest.fixture
def project(encoded_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the project with its features."""
    work_in_copy(encoded_once, tmp_path, monkeypatch)


def _content() -> dict[str, bytes]:
    return {path.relative_to(FOLDER).as_posix(): path.read_bytes() for path in sorted(FOLDER.rglob("*.h5"))}


def _rows() -> pd.DataFrame:
    parts = [read_patches(Path(f"data/index/{name}.csv")) for name in ("patches", "unlabeled")]
    return pd.concat(parts, ignore_index=True)


@pytest.mark.usefixtures("project")
def test_every_patch_has_the_features_that_the_encoder_gives_of_it_alone() -> None:
    params_with(features__precision="float32", features__views=["flip"])()
    assert main(CALL) == 0
    rows = _rows()
    path = Path("data/models/random-0/encoder.safetensors")
    features = features_of_rows(FOLDER / "patches", rows, encoder_sha256=file_sha256(path))
    flipped = features_of_rows(FOLDER / "patches", rows, view="flip")
    encoder = load_encoder(path)[0].eval()
    some = np.linspace(0, len(rows) - 1, 6).astype(np.int64)
    pixels = torch.from_numpy(PatchReader(rows, patch_px=32, max_open_slides=4).read(some)).float() / 255
    with torch.inference_mode():
        expected, mirrored = encoder(pixels).numpy(), encoder(pixels.flip(-1)).numpy()
    np.testing.assert_allclose(features[some], expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(flipped[some], mirrored, rtol=1e-3, atol=1e-3)
    assert np.abs(features[some] - flipped[some]).max() > 1e-2


@pytest.mark.usefixtures("project")
def test_a_label_encodes_nothing_and_a_changed_slide_its_own_patches_alone() -> None:
    before = {path: path.stat().st_ino for path in FOLDER.rglob("*.h5")}
    assert len(before) > 2
    with_cell(OWN / "patches.csv", 2, "label", "tumor")()
    pixels = slide_pixels(1)
    pixels[50:90, 50:90] = 70
    write_slide(OWN / "s1.tif", pixels=pixels)
    for call in (STAGES[0], CALL):
        assert main(call) == 0
    again = {path.name for path, inode in before.items() if path.stat().st_ino != inode}
    assert again == {"s1.h5"}


@pytest.mark.usefixtures("project")
def test_a_new_patch_is_encoded_and_no_other_of_its_slide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two new squares, and one with a new name: only pixels count."""
    labeled = pd.read_csv(OWN / "patches.csv", dtype=str)
    new = labeled[labeled["slide_id"] == "s2"].head(2)
    new = new.assign(y=(new["y"].astype(float) + 7).astype(str), patch_id=["new a", "new b"])
    labeled.loc[labeled["slide_id"] == "s1", "patch_id"] = [
        f"other {number}" for number in range((labeled["slide_id"] == "s1").sum())
    ]
    pd.concat([labeled, new]).to_csv(OWN / "patches.csv", index=False)
    assert main(STAGES[0]) == 0
    known = {name for path in FOLDER.rglob("patches/**/*.h5") for name in read_features(path).patch_id}
    unlabeled = read_patches(Path("data/index/unlabeled.csv"))["patch_id"]
    counts: list[int] = []
    features = Encoding.features

    def counted(self: Encoding, encoder: Encoder, patches: torch.Tensor) -> torch.Tensor:
        counts.append(len(patches))
        return features(self, encoder, patches)

    monkeypatch.setattr(Encoding, "features", counted)
    assert main(CALL) == 0
    assert sum(counts) == 2 + len(set(unlabeled) - known)
    added = _content()
    shutil.rmtree(FOLDER)
    assert main(CALL) == 0
    assert sum(counts) > 60
    assert _content() == added


@pytest.mark.usefixtures("project")
def test_another_encoder_makes_all_anew_and_its_features_are_refused_for_the_first() -> None:
    before = _content()
    path = Path("data/models/random-0/encoder.safetensors")
    digest = file_sha256(path)
    params_with(pretraining_seeds=[1])()
    assert main(("pretrain", "--method", "random")) == 0
    other = Path("data/models/random-1")
    for name in ("encoder.safetensors", "encoder.json"):
        shutil.copy(other / name, path.with_name(name))
    params_with(pretraining_seeds=[0])()
    assert main(CALL) == 0
    after = _content()
    assert before.keys() == after.keys()
    assert all(before[name] != after[name] for name in before)
    with pytest.raises(InputError, match=r"\.h5: encoder_sha256 is .*, expected .* Fix: "):
        features_of_rows(FOLDER / "patches", _rows(), encoder_sha256=digest)


@pytest.mark.slow
@pytest.mark.usefixtures("project")
def test_four_processes_leave_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    fork_ranks(monkeypatch)
    before = _removed()
    monkeypatch.setenv("HISTO_MONAI_RANKS", "4")
    assert main(CALL) == 0
    assert _content() == before


@pytest.mark.slow
@pytest.mark.usefixtures("project")
def test_a_killed_run_continues_and_leaves_the_same_bytes() -> None:
    before = _removed()
    _killed_after_one_file()
    assert not FOLDER.exists()
    (finished, *_) = _finished()
    inode = finished.stat().st_ino
    assert main(CALL) == 0
    assert _content() == before
    assert inode in {path.stat().st_ino for path in FOLDER.rglob("*.h5")}


@pytest.mark.slow
@pytest.mark.usefixtures("project")
def test_dask_leaves_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _removed()
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        monkeypatch.setenv("HISTO_MONAI_CLUSTER", cluster.scheduler_address)
        assert main(CALL) == 0
    assert _content() == before


def _removed() -> dict[str, bytes]:
    """Content of the features, which are removed."""
    content = _content()
    shutil.rmtree(FOLDER)
    return content


def _finished() -> list[Path]:
    """Files of a stage that has not ended, without drafts."""
    return [
        path
        for path in Path("data/checkpoints/features-random-0").rglob("*.h5")
        if not path.name.startswith(".")
    ]


def _killed_after_one_file() -> None:
    """Kill the stage between its first file and its last; a stage that was quicker runs again."""
    for _ in range(10):
        with subprocess.Popen([sys.executable, "-m", "histo_monai", *CALL], env=dict(os.environ)) as process:
            deadline = time.monotonic() + 120
            while not _finished() and process.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
        if not FOLDER.exists():
            return
        shutil.rmtree(FOLDER)
    raise AssertionError("the stage was never killed in time")


@pytest.mark.slow
@pytest.mark.usefixtures("project")
def test_baselines_encode_no_patch_that_has_features(monkeypatch: pytest.MonkeyPatch) -> None:
    _with_a_resnet()
    for call in STAGES[2:4]:
        assert main(call) == 0
    num_of_networks, predicted = _evaluated(monkeypatch)
    params_with(features__depth=1)()
    assert main(CALL) == 0
    num, encoded = _evaluated(monkeypatch)  # features at another depth do not serve
    assert num - num_of_networks == len(read_patches(Path("data/index/patches.csv")))
    for name in ("encoder_linear", "encoder_knn"):
        columns = [column for column in predicted if column.startswith(name)]
        assert columns
        np.testing.assert_allclose(predicted[columns], encoded[columns], atol=5e-3)


def _with_a_resnet(**changes: Any) -> None:
    """Features of an encoder that has stages."""
    params_with(encoder__name="resnet18", **changes)()
    for call in (STAGES[1], CALL):
        assert main(call) == 0


@pytest.mark.usefixtures("project")
def test_stored_features_serve_while_encoder_slides_and_patches_are_the_same() -> None:
    params, tables = load_params(Path("params.yaml")), {"all": _rows()}
    encoder = Path("data/models/random-0/encoder.safetensors")
    stored = stored_features(params, "random", 0, tables)
    assert stored is not None
    np.testing.assert_array_equal(
        stored["all"]["encoder"], features_of_rows(FOLDER / "patches", tables["all"]).astype(np.float32)
    )
    content = encoder.read_bytes()
    encoder.write_bytes(b"another encoder")
    assert stored_features(params, "random", 0, tables) is None
    encoder.write_bytes(content)
    write_slide(OWN / "s5.tif", seed=99)
    assert main(STAGES[0]) == 0
    assert stored_features(params, "random", 0, {"all": _rows()}) is None
    rows = _rows()
    others = {"others": rows[rows["slide_id"] != "s5"].reset_index(drop=True)}
    assert stored_features(params, "random", 0, others) is not None


def _evaluated(monkeypatch: pytest.MonkeyPatch) -> tuple[int, pd.DataFrame]:
    """Patches that went through encoders in `evaluate`, and its predictions."""
    counts: list[int] = []
    forward = Encoder.forward

    def counted(self: Encoder, patches: torch.Tensor) -> torch.Tensor:
        counts.append(len(patches))
        return forward(self, patches)

    with monkeypatch.context() as patch:
        patch.setattr(Encoder, "forward", counted)
        assert main(STAGES[4]) == 0
    return sum(counts), pd.read_csv("data/evaluation/random-0-paper-0/predictions.csv")


@pytest.mark.usefixtures("project")
def test_float16_is_the_rounded_float32_and_the_record_counts_patches() -> None:
    half = features_of_rows(FOLDER / "patches", _rows())
    assert half.dtype == np.float16
    counts = json.loads((FOLDER / "summary.json").read_text())
    of_slides = [len(read_features(path).features) for path in FOLDER.glob("*.h5")]
    assert counts == {"slides": 7, "patches": sum(of_slides), "patches_of_tables": len(_rows())}
    params_with(features__precision="float32")()
    assert main(CALL) == 0
    whole = features_of_rows(FOLDER / "patches", _rows())
    np.testing.assert_array_equal(half, whole.astype(np.float16))


@pytest.mark.usefixtures("project")
def test_depth_ends_the_encoder_after_a_stage() -> None:
    _with_a_resnet(features__depth=1)
    path = next((FOLDER / "patches").rglob("*.h5"))
    content = read_features(path)
    assert (
        content.features.shape[1] == 2 * 64
    )  # mean and standard deviation of the channels of layer1 of a ResNet-18
    assert content.provenance.depth == 1


@pytest.mark.parametrize("can_link", [True, False])
def test_files_that_another_process_takes_over_at_once_stay(
    can_link: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    if not can_link:
        monkeypatch.setattr(os, "link", link)
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(b"features")
    for _ in range(2):
        _link(source, target)
        assert target.read_bytes() == source.read_bytes() == b"features"
