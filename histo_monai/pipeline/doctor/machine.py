"""Checks of `doctor`: environment variables, device, precision, memory."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from histo_monai.data.decoding.choice import decoder_line
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
"""CPU flags in Linux, on x86 and on ARM."""


def environment(_params: Params | None) -> Iterator[Finding]:
    """Check of names and values of HISTO_MONAI_* variables."""
    names = (
        "DEVICE",
        "PRECISION",
        "RANKS",
        "WORKERS",
        "DECODER",
        "CPUS",
        "CLUSTER",
        "TIMEOUT_S",
        "TRACEBACK",
    )
    known = {f"HISTO_MONAI_{name}" for name in names}
    unknown = sorted(name for name in os.environ if name.startswith("HISTO_MONAI_") and name not in known)
    if unknown:
        yield Finding(
            "WARN",
            "environment",
            f"{', '.join(unknown)}: unknown variable",
            f"use one of {', '.join(sorted(known))}",
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
    """Check of GPU and torch build."""
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(number)
            free, total = torch.cuda.mem_get_info(number)
            message = (
                f"{about.name}, {free / 1e9:.1f} of {total / 1e9:.1f} GB free, CUDA {torch.version.cuda}"
            )
            yield Finding("PASS", f"GPU {number}", message)
        yield from _decoding()
        return
    if shutil.which("nvidia-smi") or Path("/dev/nvidia0").exists():
        built = f"torch is built for CUDA {torch.version.cuda}" if torch.version.cuda else "torch has no CUDA"
        yield Finding(
            "WARN",
            "GPU",
            f"torch cannot use the GPU ({built})",
            "check the driver with `nvidia-smi`",
        )
        return
    yield Finding(
        "WARN",
        "GPU",
        "none; the CPU is sufficient for params.yaml as committed",
        "use a GPU for params/paper.yaml",
    )
    yield from _precision_of_cpu()


def _decoding() -> Iterator[Finding]:
    """Check of the decoder of slides."""
    try:
        yield Finding("PASS", "decoding", decoder_line(read_environment().device))
    except InputError as error:
        yield Finding("FAIL", "decoding", str(error))


def has_bfloat16() -> bool:
    """Whether the processor reports bfloat16 arithmetic."""
    return CPUINFO.exists() and bool(_BFLOAT16 & set(CPUINFO.read_text().split()))


def _precision_of_cpu() -> Iterator[Finding]:
    """Check of bfloat16 on the CPU."""
    try:
        asked = asked_precision()
    except InputError:  # the check of the variables reports it
        return
    if has_bfloat16() and not asked:
        message = "float32; this processor supports bfloat16: HISTO_MONAI_PRECISION=bfloat16 makes features "
        yield Finding(
            "PASS", "precision", message + "and maps two to four times as fast, with less precision"
        )
    elif asked == "bfloat16" and not has_bfloat16():
        message = "bfloat16 is set, but this processor does not report it; float32 is faster"
        yield Finding("WARN", "precision", message, "unset HISTO_MONAI_PRECISION")


def memory(_params: Params | None) -> Iterator[Finding]:
    """Check of free memory, container limit included, against the need of a training."""
    free, of_what = memory_free()
    try:
        workers = read_environment().workers
    except InputError:  # The check of the variables reports it.
        workers = 0
    unit = 1 if sys.platform == "darwin" else 1024
    each = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    # Memory of a training step, plus this process's own, which has the libraries loaded.
    need = 2 * each + workers * each
    message = f"{free / 1e9:.1f} GB free ({of_what}); a training with {workers} workers needs about {need / 1e9:.1f} GB"
    if free < need:
        yield Finding("WARN", "memory", message, "set fewer HISTO_MONAI_WORKERS or a smaller batch_size")
    else:
        yield Finding("PASS", "memory", message)


def memory_free() -> tuple[int, str]:
    """Free bytes for this process, and the source of the limit."""
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
