"""Command `import SOURCE --output FOLDER`: MONAI bundle or state dict -> model file."""

from __future__ import annotations

import logging
from pathlib import Path

from histo_monai.wsi.export.back import take_back

_LOG = logging.getLogger(__name__)


def run(source: str, folder: str, like: str | None) -> None:
    """Write FOLDER/model.safetensors or encoder.safetensors, and its JSON description.

    Raises:
        InputError: a file cannot be used, or the tensors do not fit.
        OutputError: the folder holds other files.
    """
    path = take_back(Path(source), Path(folder), Path(like) if like else None)
    _LOG.info("import: model=%s", path)
