"""Machine settings from environment variables: device, precision, numbers of processes.

| variable | meaning | default |
|---|---|---|
| HISTO_MONAI_DEVICE | cpu, cuda or cuda:<n> | cuda if available |
| HISTO_MONAI_PRECISION | float32 or bfloat16 of encoders | bfloat16 on a GPU, else float32 |
| HISTO_MONAI_RANKS | processes of a training or of maps, one per GPU | all GPUs; 1 on the CPU or with cuda:<n> |
| HISTO_MONAI_WORKERS | reading processes per training process | all cores but two, divided by the GPUs (1) |
| HISTO_MONAI_DECODER | cpu or gpu decodes the tiles of slides | gpu where it can (3), else cpu |
| HISTO_MONAI_CPUS | processes that simulate and survey slides; threads of a training without a GPU (2) | all cores |
| HISTO_MONAI_CLUSTER | address of a Dask scheduler whose workers survey, simulate and map | this machine |
| HISTO_MONAI_TIMEOUT_S | time limit of a step in a training of several RANKS, s | 1800 |

(1) At most 16 each; without a GPU half the cores, at most 8; on two cores 0.
(2) Threads decode slides and run the network.
(3) A GPU with nvJPEG, for JPEG and JPEG 2000 in tiled TIFF; pretraining only with fewer than 8 WORKERS.

No variable changes a random decision. Loader workers change no byte on the CPU. Numbers of cores or ranks, device,
precision and decoder change rounding.
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

if TYPE_CHECKING:  # importing torch takes a second
    import torch


class InRanks(TypedDict):
    """Keyword arguments of `training.ranks.run_in_ranks`."""

    device: torch.device
    ranks: int
    timeout_s: float


class Sharing(InRanks):
    """Keyword arguments of `wsi.inference.slides.over_slides`."""

    workers: int


@dataclass(frozen=True)
class Environment:
    """Values of the variables in the module's table."""

    device: torch.device
    ranks: int
    workers: int
    cpus: int
    timeout_s: int

    @property
    def in_ranks(self) -> InRanks:
        """Settings of a training on several processes."""
        return InRanks(device=self.device, ranks=self.ranks, timeout_s=float(self.timeout_s))

    @property
    def sharing(self) -> Sharing:
        """Settings of work on slides by several processes."""
        return Sharing(**self.in_ranks, workers=self.workers)

    def use_cpus(self, processes: int = 1) -> None:
        """Divide the cores among training processes: decoding threads and, on a CPU, torch's threads.

        With a GPU torch has one thread: further threads would take cores from the reading processes.
        """
        import torch

        threads = max(1, self.cpus // processes)
        of_cpu = threads if self.device.type == "cpu" else 1
        decode_with(threads)
        torch.set_num_threads(of_cpu)


def read_environment() -> Environment:
    """Environment of this process.

    Raises:
        InputError: a variable has an invalid value, or names a missing device.
    """
    import torch

    from histo_monai.data.decoding.choice import asked_decoder

    available = _available()
    device = _device(os.environ.get("HISTO_MONAI_DEVICE", ""))
    asked_precision()
    asked_decoder()
    gpus = torch.cuda.device_count() if device.type == "cuda" and device.index is None else 1
    ranks = _count("HISTO_MONAI_RANKS", default=gpus, low=1)
    readers = min(16, (available - 2) // ranks) if device.type == "cuda" else min(8, available // 2)
    default_workers = readers if available > 2 else 0
    return Environment(
        device=device,
        ranks=ranks,
        workers=_count("HISTO_MONAI_WORKERS", default=default_workers, low=0),
        cpus=num_cpus(),
        timeout_s=_count("HISTO_MONAI_TIMEOUT_S", default=1800, low=1),
    )


def num_cpus() -> int:
    """Value of `Environment.cpus`.

    Raises:
        InputError: HISTO_MONAI_CPUS is not a positive integer.
    """
    return _count("HISTO_MONAI_CPUS", default=_available(), low=1)


def torchrun_rank() -> int:
    """Rank of this process under torchrun; 0 without torchrun.

    Raises:
        InputError: RANK is not an integer.
    """
    return _count("RANK", default=0, low=0)


class QueuedExperiment(NamedTuple):
    """DVC experiment that runs in a temporary folder.

    Attributes:
        project: root of the project with the queue.
        name: as in `dvc queue status`.
    """

    project: Path
    name: str


def queued_experiment() -> QueuedExperiment | None:
    """The running queued experiment; None outside a queue.

    DVC sets its name and, as DVC_ROOT, the root of its project.
    """
    name, root = os.environ.get("DVC_EXP_NAME", ""), Path(os.environ.get("DVC_ROOT", "")).resolve()
    return (
        QueuedExperiment(root, name) if name and Path.cwd().is_relative_to(root / ".dvc/tmp/exps") else None
    )


class CodeVersion(NamedTuple):
    """Version of the running code.

    Attributes:
        commit: last commit that changed code, params or pipeline; of an installed package, the project's last commit of
            params or pipeline; None outside git.
        is_dirty: whether these files differ from the commit; None without a commit.
        sha256: digest of the package's code.
    """

    commit: str | None
    is_dirty: bool | None
    sha256: str


def code_version() -> CodeVersion:
    """Version of the current code."""
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
    """Output of git; None without git, repository or commit."""
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
        raise InputError(f"HISTO_MONAI_DEVICE: {text!r} is no device. Fix: set cpu, cuda or cuda:<n>")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(
            f"HISTO_MONAI_DEVICE: {text!r}, but torch finds no such GPU. Fix: unset it to use the CPU"
        )
    return device


def _count(name: str, *, default: int, low: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    if not re.fullmatch("[0-9]{1,6}", text) or int(text) < low:
        raise InputError(
            f"{name}: {text[:40]!r} is out of range. Fix: set a whole number from {low} to 999999"
        )
    return int(text)
