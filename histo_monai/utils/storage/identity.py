"""Is this the file, or the slide, that was read then? Known again by size, time and a digest of samples.

Of one file 4 MiB are read at most. Of a slide of n files (`slide_files`) 4 MiB of the first, and of the others 64
samples together, but 4 of each at least: 8 MiB, or 4 + n / 4 MiB where n is more than 16.
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
    """What a file, or a slide of several files, was when it was read.

    Attributes:
        path: Where it really is, links followed.
        size: Bytes, of all files.
        mtime_ns: When it was last changed, ns since 1970; of several files the one that was changed last.
        sample_sha256: SHA-256 of its size and of 64 samples of 64 KiB, evenly spaced, the first and the last bytes
            among them; of all bytes where it has no more than these, 4 MiB. A change between the samples that keeps
            size and time is not seen. Of several files: SHA-256 of such digests and of the names of the files that are
            read with the first.
    """

    path: str
    size: int
    mtime_ns: int
    sample_sha256: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def identify(path: Path, num_samples: int = _NUM_SAMPLES) -> FileIdentity:
    """Read samples of one file.

    Raises:
        InputFileError: It is no regular file.
        OSError: It cannot be read.
    """
    real = path.resolve(strict=True)
    with open_regular(real) as file:
        about = os.fstat(file.fileno())
        digest = hashlib.sha256(str(about.st_size).encode())
        for start in _starts(about.st_size, num_samples):
            digest.update(os.pread(file.fileno(), _SAMPLE_BYTES, start))
    return FileIdentity(str(real), about.st_size, about.st_mtime_ns, digest.hexdigest())


def file_of(path: Path) -> Path:
    """The file itself, or the zip that the path leads through."""
    return next((place for place in (path, *path.parents) if place.is_file()), path)


def identify_slide(path: Path) -> FileIdentity:
    """Read samples of all files of a slide.

    Raises:
        InputFileError: See `slide_files`.
        OSError: One cannot be read.
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
