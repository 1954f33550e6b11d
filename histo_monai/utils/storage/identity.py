"""Identity of a file or a slide by size, time and a digest of samples, to detect a replaced file.

At most 4 MiB of a file are read. Of a slide with n files (`slide_files`), 4 MiB of the first are read, and 64 samples
of the others together, at least 4 of each: 8 MiB, or 4 + n / 4 MiB for n above 16.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from histo_monai.utils.storage.reading import open_regular
from histo_monai.utils.storage.slide_files import slide_files

_SAMPLE_BYTES = 2**16
_NUM_SAMPLES = 64
_FEWEST_SAMPLES = 4


@dataclass(frozen=True)
class FileIdentity:
    """Identity of a file, or of a slide of several files.

    Attributes:
        path: Path with links followed.
        size: Bytes of all files.
        mtime_ns: Latest change of any file, ns since 1970.
        sample_sha256: SHA-256 of the size and of 64 evenly spaced samples of 64 KiB, with the first and last bytes; of
            all bytes of a file up to 4 MiB. A change between the samples with equal size and time is not detected.
            Several files: SHA-256 of such digests and of the names of all files but the first.
    """

    path: str
    size: int
    mtime_ns: int
    sample_sha256: str

    def as_dict(self) -> dict[str, Any]:
        """Content for JSON."""
        return asdict(self)


def identify(path: Path, num_samples: int = _NUM_SAMPLES) -> FileIdentity:
    """Identity of one file.

    Raises:
        InputFileError: The path is no regular file.
        OSError: The file cannot be read.
    """
    real = path.resolve(strict=True)
    with open_regular(real) as file:
        about = os.fstat(file.fileno())
        digest = hashlib.sha256(str(about.st_size).encode())
        for start in _starts(about.st_size, num_samples):
            digest.update(os.pread(file.fileno(), _SAMPLE_BYTES, start))
    return FileIdentity(str(real), about.st_size, about.st_mtime_ns, digest.hexdigest())


def file_of(path: Path) -> Path:
    """The file itself, or the zip that contains it."""
    return next((place for place in (path, *path.parents) if place.is_file()), path)


def identify_slide(path: Path) -> FileIdentity:
    """Identity of a slide, from samples of all its files.

    Raises:
        InputFileError: An error of `slide_files`.
        OSError: A file cannot be read.
    """
    _, *beside = slide_files(path)
    first = identify(path)
    if not beside:
        return first
    each = max(_FEWEST_SAMPLES, _NUM_SAMPLES // len(beside))
    others = [identify(other, each) for other in beside]
    digest = hashlib.sha256(first.sample_sha256.encode())
    for other, found in zip(beside, others, strict=True):
        digest.update(os.fsencode(f"{other.name}\0{found.sample_sha256}\0"))
    size, mtime_ns = (
        sum(one.size for one in (first, *others)),
        max(one.mtime_ns for one in (first, *others)),
    )
    return FileIdentity(first.path, size, mtime_ns, digest.hexdigest())


def _starts(size: int, num: int) -> list[int]:
    if size <= _SAMPLE_BYTES * num:
        return list(range(0, size, _SAMPLE_BYTES))
    last = size - _SAMPLE_BYTES
    return [last * i // (num - 1) for i in range(num)]
