from __future__ import annotations

from pathlib import Path

import pytest
import torch

from histo_monai.models.encoder import build_encoder
from histo_monai.pipeline.params import load_params
from histo_monai.pipeline.provenance import made_from
from histo_monai.training.device import in_memory_order, precision, to_device
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.precision import asked_precision, computes_in_bfloat16

CPU, GPU = torch.device("cpu"), torch.device("cuda:0")


@pytest.mark.parametrize(
    ("asked", "on_cpu", "on_gpu"),
    [(None, False, True), ("", False, True), ("float32", False, False), ("bfloat16", True, True)],
)
def test_a_gpu_computes_in_bfloat16_and_a_cpu_in_float32_unless_one_is_asked_for(
    asked: str | None, on_cpu: bool, on_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if asked is None:
        monkeypatch.delenv("HISTO_MONAI_PRECISION", raising=False)
    else:
        monkeypatch.setenv("HISTO_MONAI_PRECISION", asked)
    assert computes_in_bfloat16(CPU) is on_cpu
    assert computes_in_bfloat16(GPU) is on_gpu


@pytest.mark.parametrize("asked", ["float16", "BFLOAT16", "bfloat16 ", "16"])
def test_another_precision_is_refused(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HISTO_MONAI_PRECISION", asked)
    with pytest.raises(InputError, match=r"HISTO_MONAI_PRECISION: .*float32 or bfloat16"):
        asked_precision()


def test_encoders_of_a_cpu_compute_in_it_to_eight_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    encoder, images = build_encoder().eval(), torch.rand(4, 3, 64, 64)
    found = {}
    for asked in ("float32", "bfloat16"):
        monkeypatch.setenv("HISTO_MONAI_PRECISION", asked)
        to_device(encoder, CPU)
        with torch.no_grad(), precision(CPU):
            found[asked] = encoder(in_memory_order(images, CPU)).float()
    apart = float((found["bfloat16"] - found["float32"]).norm() / found["float32"].norm())
    assert 2**-12 < apart < 2**-5


def test_a_record_names_the_precision_that_was_asked_for(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    params = load_params(root / "params.yaml")
    monkeypatch.delenv("HISTO_MONAI_PRECISION", raising=False)
    plain = made_from(params)
    assert "precision" not in plain
    monkeypatch.setenv("HISTO_MONAI_PRECISION", "bfloat16")
    assert made_from(params) == plain | {"precision": "bfloat16"}
