"""Cost of features and of a round of labels in `doctor`: against naive timing, written files, and counted images."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import nn

from histo_monai.data.tables.patches import read_patches
from histo_monai.data.tables.tasks import split_rows
from histo_monai.models.encoders.architectures import ENCODERS, Architecture
from histo_monai.models.task_model import TaskModel
from histo_monai.pipeline.cli import main
from histo_monai.pipeline.doctor import cost, reading, speed
from histo_monai.pipeline.doctor.finding import Finding
from histo_monai.pipeline.params import Params, load_params
from tests.folders import NewFolder, work_in_copy
from tests.hostile.project import STAGES, params_with, write_own_project

pytestmark = pytest.mark.slow

SECONDS = 0.01
ENCODE = ("features", "--method", "random")


class Sleepy(nn.Module):
    """Mean color of a patch, after a sleep for each patch."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        time.sleep(SECONDS * len(patches))
        return patches.mean(dim=(2, 3)) * self.scale


@pytest.fixture(scope="module")
def indexed(module_folder: NewFolder) -> Path:
    """Own slides, indexed, with a pretrained random encoder; no test changes it."""
    folder = module_folder("cost")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_own_project()
        params_with(encoder__name="resnet18", labels__own__unlabeled=60, features__batchnorm_patches=0)()
        for call in STAGES[:2]:
            assert main(call) == 0
    return folder


@pytest.fixture
def project(indexed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the project."""
    work_in_copy(indexed, tmp_path, monkeypatch)
    monkeypatch.setenv("HISTO_MONAI_DEVICE", "cpu")
    monkeypatch.setattr(cost, "COUNTING_S", 300.0)
    monkeypatch.setitem(ENCODERS, "sleepy", Architecture(lambda px: Sleepy()))


def _params() -> Params:
    return load_params(Path("params.yaml"))


def _rows() -> pd.DataFrame:
    tables = [read_patches(Path(f"data/index/{name}.csv")) for name in ("patches", "unlabeled")]
    return pd.concat(tables, ignore_index=True)


def _features(params: Params) -> Finding:
    return next(iter(cost.of_features(params)))


def _number(pattern: str, finding: Finding) -> float:
    match = re.search(pattern, finding.message)
    assert match, finding
    return float(match[1].replace(",", ""))


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(("limit_s", "measured"), [(10.0, (32, 32)), (0.1, (1, 20))])
def test_time_of_an_encoder_is_that_of_a_loop_over_patches(
    limit_s: float, measured: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "LIMIT_S", limit_s)
    params_with(encoder__name="sleepy", features__views=["flip"], pretraining_seeds=[0, 1])()
    finding = _features(_params())
    start = time.perf_counter()
    network = Sleepy()
    for _ in range(2 * 20):  # twenty patches, unaugmented and flipped
        network(torch.zeros(1, 3, 32, 32))
    naive = (time.perf_counter() - start) / 20
    stated = _number(r"([\d.]+) s per 1,000 patches", finding) / 1000
    assert 0.7 < stated / naive < 1.5
    low, high = measured
    assert low <= _number(r"\((\d+) measured\)", finding) <= high
    amount = cost.amount_of_features(_params(), _rows(), 3, 0)
    assert amount.num_encoded == 2 * amount.num_patches
    minutes = amount.minutes(speed.Speed(naive, 32))
    assert minutes == pytest.approx(naive * 2 * amount.num_patches / 60)


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(("views", "precision"), [((), "float32"), (("flip", "rotate_90"), "float16")])
def test_megabytes_and_patches_are_those_of_the_written_files(views: tuple[str, ...], precision: str) -> None:
    params_with(features__views=list(views), features__precision=precision)()
    finding = _features(_params())
    amount = cost.amount_of_features(_params(), _rows(), 512, 0)
    assert f"{amount.num_bytes / 1e6:.1f} MB" in finding.message
    assert main(ENCODE) == 0
    files = list(Path("data/features/random-0").rglob("*.h5"))
    assert amount.num_bytes == pytest.approx(sum(path.stat().st_size for path in files), rel=0.05)


@pytest.mark.usefixtures("project")
def test_patches_of_whole_slides_are_those_that_the_stage_encodes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(ENCODE) == 0
    summary = json.loads(Path("data/features/random-0/summary.json").read_text())
    exact = summary["patches"] + _rows()["patch_id"].nunique()
    monkeypatch.setattr(cost, "COUNTED_SLIDES", 99)
    amount = cost.amount_of_features(_params(), _rows(), 512, 0)
    assert (amount.num_patches, amount.uncounted) == (exact, "")
    monkeypatch.setattr(cost, "COUNTED_SLIDES", 2)
    amount = cost.amount_of_features(_params(), _rows(), 512, 0)
    assert amount.num_patches == pytest.approx(exact, rel=0.1)
    assert amount.uncounted.startswith("estimated from 2 of ")
    monkeypatch.setattr(reading, "ask", lambda jobs, timeout_s: [{"problem": "damaged"} for _ in jobs])
    amount = cost.amount_of_features(_params(), _rows(), 512, 0)
    assert amount.num_patches == _rows()["patch_id"].nunique()
    assert "not counted" in amount.uncounted


@pytest.mark.usefixtures("project")
def test_a_round_of_labels_counts_the_images_that_fine_tuning_trains_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    images: list[int] = []
    forward = TaskModel.forward

    def counted(self: TaskModel, patches: torch.Tensor) -> torch.Tensor:
        if self.training and torch.is_grad_enabled():
            images.append(len(patches))
        return forward(self, patches)

    _, round_of_labels = cost.of_features(_params())
    networks, of_each = cost.trained_images(
        _params(), len(split_rows(read_patches(Path("data/index/patches.csv")), "train")), "two_classes"
    )
    monkeypatch.setattr(TaskModel, "forward", counted)
    assert main(("finetune", "--method", "random", "--seed", "0")) == 0
    assert 0.5 * networks * of_each <= sum(images) <= networks * of_each
    assert f"at most {networks} networks on {of_each} images each" in round_of_labels.message


@pytest.mark.usefixtures("project")
def test_a_head_on_features_encodes_nothing_again_and_a_slow_encoder_is_not_estimated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cost, "_LONGEST_STEP_S", 1e-9)
    _, slow = cost.of_features(_params())
    assert slow.status == "WARN"
    assert slow.message.startswith("not estimated")
    params_with(
        finetune__mode="head",
        semisupervised_methods=["supervised"],
        slide_level__semisupervised_methods=["supervised"],
    )()
    _, head = cost.of_features(_params())
    assert head.message.startswith("new labels encode no patch")


@pytest.mark.usefixtures("project")
def test_a_published_encoder_is_measured_without_its_file_and_an_unknown_name_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    params_with(encoder__name="efficientnet-lite0", encoder__side=32)()
    assert _features(_params()).status == "PASS"
    monkeypatch.setattr(cost, "memory_free", lambda: (1_000, "of the machine"))
    short = _features(_params())
    assert (short.status, "not measured" in short.message) == ("WARN", True)
    params_with(encoder__name="no-such-network")()
    unknown = _features(_params())
    assert unknown.status == "FAIL"
    assert "encoder.name" in unknown.message


@pytest.mark.usefixtures("project")
def test_check_names_the_command(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        assert main(("check",)) == 0
    assert [line for line in caplog.messages if "histo-monai doctor" in line]
