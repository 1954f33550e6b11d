"""What a run takes from the machine and never from params: device, and how many processes work at a time.

| variable | meaning | where it is not set |
|---|---|---|
| HISTO_MONAI_DEVICE | cpu, cuda or cuda:<n> | cuda where there is one |
| HISTO_MONAI_PRECISION | float32 or bfloat16: what encoders compute in | bfloat16 on a GPU, else float32 |
| HISTO_MONAI_RANKS | processes of a training or of maps, one per GPU | all GPUs; 1 on the CPU or with cuda:<n> |
| HISTO_MONAI_WORKERS | reading processes of each training process | all cores but two, shared by the GPUs (1) |
| HISTO_MONAI_CPUS | processes that simulate and survey slides; cores of a training without a GPU (2) | all cores |
| HISTO_MONAI_CLUSTER | address of a Dask scheduler: its workers survey, simulate, map | this machine |
| HISTO_MONAI_TIMEOUT_S | seconds that one of several RANKS may take for a step before the run is ended | 1800 |

(1) At most 16 each; without a GPU half the cores, at most 8; on two cores 0.
(2) Threads that decode slides and run the network.

None of them changes a random decision. On the CPU, loader workers change no byte; other numbers of cores or ranks, and
another device, add up floats in another order, and another precision has more or fewer digits of them.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from histo_monai.utils.errors import InputError
from histo_monai.utils.process.precision import asked_precision
from histo_monai.utils.process.threads import decode_with
from histo_monai.utils.settings.own_methods import OWN_METHODS

if TYPE_CHECKING:  # takes a second, which stages without a network spare
    import torch


class InRanks(TypedDict):
    """See `Environment.in_ranks`."""

    device: torch.device
    ranks: int
    timeout_s: float


class Sharing(InRanks):
    """See `Environment.sharing`."""

    workers: int


@dataclass(frozen=True)
class Environment:
    """See the module's table."""

    device: torch.device
    ranks: int
    workers: int
    cpus: int
    timeout_s: int

    @property
    def in_ranks(self) -> InRanks:
        """How processes share a training: the keyword arguments of `training.ranks.run_in_ranks`."""
        return InRanks(device=self.device, ranks=self.ranks, timeout_s=float(self.timeout_s))

    @property
    def sharing(self) -> Sharing:
        """How work on slides is shared: the keyword arguments of `wsi.inference.slides.over_slides`."""
        return Sharing(**self.in_ranks, workers=self.workers)

    def use_cpus(self, processes: int = 1) -> None:
        """Share the cores among this many training processes: threads that decode slides and, on a CPU, torch's.

        Beside a GPU torch has one: what it does on the CPU there is small, and threads that wait for more of it take
        their cores from the processes that read.
        """
        import torch

        threads = max(1, self.cpus // processes)
        of_cpu = threads if self.device.type == "cpu" else 1
        decode_with(threads)
        torch.set_num_threads(of_cpu)


def read_environment() -> Environment:
    """The environment of this process.

    Raises:
        InputError: a variable holds what it cannot mean, or asks for a device that is not there.
    """
    import torch

    available = _available()
    device = _device(os.environ.get("HISTO_MONAI_DEVICE", ""))
    asked_precision()
    gpus = torch.cuda.device_count() if device.type == "cuda" and device.index is None else 1
    ranks = _count("HISTO_MONAI_RANKS", default=gpus, low=1)
    shared = min(16, (available - 2) // ranks) if device.type == "cuda" else min(8, available // 2)
    default_workers = shared if available > 2 else 0
    return Environment(
        device=device,
        ranks=ranks,
        workers=_count("HISTO_MONAI_WORKERS", default=default_workers, low=0),
        cpus=num_cpus(),
        timeout_s=_count("HISTO_MONAI_TIMEOUT_S", default=1800, low=1),
    )


def num_cpus() -> int:
    """`Environment.cpus` by itself.

    Raises:
        InputError: HISTO_MONAI_CPUS is no such number.
    """
    return _count("HISTO_MONAI_CPUS", default=_available(), low=1)


def torchrun_rank() -> int:
    """Number of this process among those that torchrun started; 0 where it did not.

    Raises:
        InputError: RANK is no such number.
    """
    return _count("RANK", default=0, low=0)


class QueuedExperiment(NamedTuple):
    """An experiment that DVC runs in a folder of its own.

    Attributes:
        project: root of the project that queued it.
        name: as `dvc queue status` prints it.
    """

    project: Path
    name: str


def queued_experiment() -> QueuedExperiment | None:
    """The experiment that runs here, where DVC runs it in a folder that is removed when it ends; else None.

    DVC tells a stage of an experiment its name, and as DVC_ROOT the project that it was started in.
    """
    name, root = os.environ.get("DVC_EXP_NAME", ""), Path(os.environ.get("DVC_ROOT", "")).resolve()
    return (
        QueuedExperiment(root, name) if name and Path.cwd().is_relative_to(root / ".dvc/tmp/exps") else None
    )


class CodeVersion(NamedTuple):
    """Which code this is.

    Attributes:
        commit: The last one that changed the code, the params or the pipeline: to commit results changes nothing. Of an
            installed package, the last of the project that changed params or pipeline. None outside git.
        is_dirty: Whether files of these differ from it; None where there is no commit.
        sha256: Digest of the package's code.
    """

    commit: str | None
    is_dirty: bool | None
    sha256: str


def code_version() -> CodeVersion:
    """The code as it lies here now."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    for place, decisive in ((package.parent, (package.name, *_OF_PROJECT)), (Path(), _OF_PROJECT)):
        if commit := _git(place, "log", "-1", "--format=%H", "--", *decisive):
            changed = _git(place, "status", "--porcelain", "--", *decisive)
            return CodeVersion(commit, None if changed is None else changed != "", digest.hexdigest())
    return CodeVersion(None, None, digest.hexdigest())


_OF_PROJECT = ("params.yaml", "dvc.yaml", OWN_METHODS)


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints; None where there is no git, no repository or no commit."""
    try:
        command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _available() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _device(text: str) -> torch.device:
    import torch

    if not text:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(text)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise InputError(f"HISTO_MONAI_DEVICE is {text!r}; expected cpu, cuda or cuda:<n>")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(
            f"HISTO_MONAI_DEVICE is {text!r}, but torch finds no GPU here; unset it to use the CPU"
        )
    return device


def _count(name: str, *, default: int, low: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    if not re.fullmatch("[0-9]{1,6}", text) or int(text) < low:
        raise InputError(f"{name} is {text[:40]!r}; expected a whole number from {low} to 999999")
    return int(text)
