"""Is this the file that was read then? Known again by size, time and a digest of samples, in milliseconds."""

from __future__ import annotations

import hashlib
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_SAMPLE_BYTES = 2**16
_NUM_SAMPLES = 64


@dataclass(frozen=True)
class FileIdentity:
    """What a file was when it was read.

    Attributes:
        path: Where it really is, links followed.
        size: Bytes.
        mtime_ns: When it was last changed, ns since 1970.
        sample_sha256: SHA-256 of its size and of 64 samples of 64 KiB, evenly spaced, the first and the last bytes
            among them; of all bytes where it has no more than these, 4 MiB. A change between the samples that keeps
            size and time is not seen.
    """

    path: str
    size: int
    mtime_ns: int
    sample_sha256: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def identify(path: Path) -> FileIdentity:
    """Read samples of a file.

    Raises:
        OSError: It cannot be read.
    """
    real = path.resolve(strict=True)
    with real.open("rb", buffering=0) as file:
        about = os.fstat(file.fileno())
        digest = hashlib.sha256(str(about.st_size).encode())
        for start in _starts(about.st_size):
            digest.update(os.pread(file.fileno(), _SAMPLE_BYTES, start))
    return FileIdentity(str(real), about.st_size, about.st_mtime_ns, digest.hexdigest())


def _starts(size: int) -> list[int]:
    if size <= _SAMPLE_BYTES * _NUM_SAMPLES:
        return list(range(0, size, _SAMPLE_BYTES))
    last = size - _SAMPLE_BYTES
    return [last * i // (_NUM_SAMPLES - 1) for i in range(_NUM_SAMPLES)]
