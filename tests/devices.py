"""The device of tests that hold it against the CPU: they run on the CPU everywhere, and on a GPU where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

_NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

ComputeIn = Callable[[torch.dtype], None]


@pytest.fixture(
    params=[
        pytest.param("cpu", marks=pytest.mark.rehearsal),
        pytest.param("cuda:0", marks=[pytest.mark.gpu, _NEEDS_GPU]),
    ]
)
def device(request: pytest.FixtureRequest) -> torch.device:
    """Where the test runs; its reference is on the CPU."""
    return torch.device(request.param)


@pytest.fixture
def compute_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[ComputeIn]:
    """A function that makes every engine compute in float32, or in bfloat16 as on a GPU, whatever the device."""
    backends = (torch.backends.cudnn, torch.backends.cuda.matmul)
    before = [backend.allow_tf32 for backend in backends]
    for backend in backends:
        backend.allow_tf32 = False  # 10 bits of a float32's 23

    def compute(dtype: torch.dtype) -> None:
        monkeypatch.setenv("HISTO_MONAI_PRECISION", str(dtype).removeprefix("torch."))

    yield compute
    for backend, allowed in zip(backends, before, strict=True):
        backend.allow_tf32 = allowed
