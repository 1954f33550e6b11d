"""Command `import SOURCE --output FOLDER`: a MONAI bundle or a state dict -> a model that all commands take."""

from __future__ import annotations

import logging
from pathlib import Path

from histo_monai.wsi.export.back import take_back

_LOG = logging.getLogger(__name__)


def run(source: str, folder: str, like: str | None) -> None:
    """Write FOLDER/model.safetensors, or encoder.safetensors, with its description; see `take_back`.

    Raises:
        InputError: a file cannot be used, or tensors do not fit.
        OutputError: the folder holds what was not written so.
    """
    path = take_back(Path(source), Path(folder), Path(like) if like else None)
    _LOG.info("%s written", path)
