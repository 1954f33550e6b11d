"""The machine: environment variables, device, memory."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from histo_monai.pipeline.doctor.finding import Finding
from histo_monai.pipeline.environment import read_environment
from histo_monai.pipeline.params import Params
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.cluster import cluster_address
from histo_monai.utils.process.precision import asked_precision

CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
MEMINFO = Path("/proc/meminfo")
CPUINFO = Path("/proc/cpuinfo")
_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}
"""As Linux calls it, on x86 and on ARM."""


def environment(_params: Params | None) -> Iterator[Finding]:
    """HISTO_MONAI_*: known names, values that mean something."""
    names = ("DEVICE", "PRECISION", "RANKS", "WORKERS", "CPUS", "CLUSTER", "TIMEOUT_S", "TRACEBACK")
    known = {f"HISTO_MONAI_{name}" for name in names}
    unknown = sorted(name for name in os.environ if name.startswith("HISTO_MONAI_") and name not in known)
    if unknown:
        yield Finding(
            "WARN",
            "environment",
            f"{', '.join(unknown)}: no such variable",
            f"known: {', '.join(sorted(known))}",
        )
    try:
        environment = read_environment()
    except InputError as error:
        yield Finding("FAIL", "environment", str(error))
        return
    address = cluster_address()
    yield Finding(
        "PASS",
        "environment",
        f"device {environment.device}, {environment.ranks} ranks, {environment.workers} reading workers, "
        f"{environment.cpus} cores" + (f", workers of the cluster at {address}" if address else ""),
    )


def device(_params: Params | None) -> Iterator[Finding]:
    """What trains."""
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(number)
            free, total = torch.cuda.mem_get_info(number)
            message = (
                f"{about.name}, {free / 1e9:.1f} of {total / 1e9:.1f} GB free, CUDA {torch.version.cuda}"
            )
            yield Finding("PASS", f"GPU {number}", message)
        return
    if shutil.which("nvidia-smi") or Path("/dev/nvidia0").exists():
        built = f"torch is built for CUDA {torch.version.cuda}" if torch.version.cuda else "torch has no CUDA"
        yield Finding(
            "WARN",
            "GPU",
            f"there is one, and torch cannot use it ({built})",
            "look at `nvidia-smi`: its driver",
        )
        return
    yield Finding(
        "WARN",
        "GPU",
        "none: trains on the CPU, which is enough for params.yaml as committed",
        "params/paper.yaml needs one",
    )
    yield from _precision_of_cpu()


def has_bfloat16() -> bool:
    """Whether the processor says that it computes bfloat16."""
    return CPUINFO.exists() and bool(_BFLOAT16 & set(CPUINFO.read_text().split()))


def _precision_of_cpu() -> Iterator[Finding]:
    """Whether bfloat16 is fast there, where it is asked for or might be."""
    try:
        asked = asked_precision()
    except InputError:  # the check of the variables says why
        return
    if has_bfloat16() and not asked:
        message = (
            "float32; this processor computes bfloat16, too: HISTO_MONAI_PRECISION=bfloat16 trains at 256 px "
        )
        yield Finding("PASS", "precision", message + "two to three times as fast, with other digits")
    elif asked == "bfloat16" and not has_bfloat16():
        message = (
            "bfloat16 is asked for, and this processor does not say that it computes it: float32 is faster"
        )
        yield Finding("WARN", "precision", message, "unset HISTO_MONAI_PRECISION")


def memory(_params: Params | None) -> Iterator[Finding]:
    """What is free, the limit of a container counted, against what the processes of a training take."""
    free, of_what = memory_free()
    try:
        workers = read_environment().workers
    except InputError:  # The check of that name says why.
        workers = 0
    unit = 1 if sys.platform == "darwin" else 1024
    each = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    # Room for a step of training beside what this process, which has loaded the same libraries, takes.
    need = 2 * each + workers * each
    message = f"{free / 1e9:.1f} GB free ({of_what}); a training with {workers} workers takes about {need / 1e9:.1f} GB"
    if free < need:
        yield Finding("WARN", "memory", message, "fewer HISTO_MONAI_WORKERS, smaller batches")
    else:
        yield Finding("PASS", "memory", message)


def memory_free() -> tuple[int, str]:
    """Bytes that this process may still take, and what sets the limit."""
    limits = [(_available(), "of the machine")]
    for path in CGROUP_LIMITS:
        text = path.read_text().strip() if path.is_file() else "max"
        if text.isdecimal() and int(text) < 2**60:
            used = path.with_name("memory.current" if path.name == "memory.max" else "memory.usage_in_bytes")
            now = int(used.read_text()) if used.is_file() else 0
            limits.append((max(0, int(text) - now), "of the container's limit"))
    return min(limits)


def _available() -> int:
    if MEMINFO.is_file():
        for line in MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
