"""A digest of JSON inside the JSON itself, against accidental changes; without a key, it does not detect forgery."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from histo_monai.utils.storage.reading import open_regular

RECORD_SEAL = "record_sha256"
"""Key of the digest in records of results; records of models have another key."""


def sealed(content: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The content with its own digest as last entry, `key`."""
    return {**content, key: _digest_of(content)}


def opened(content: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    """The content without its digest; None if the digest does not match."""
    bare = dict(content)
    return bare if bare.pop(key, None) == _digest_of(bare) else None


def file_sha256(path: Path) -> str:
    """SHA-256 of all bytes of a file, as `sha256sum` prints it.

    Raises:
        InputFileError: The path is no regular file.
        OSError: The file cannot be read.
    """
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of(content: Mapping[str, Any]) -> str:
    """SHA-256 of the content as JSON on one line, with keys in their order."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
