"""Few labels, many slides: semi-supervised learning on whole-slide histopathology.

The names in `__all__` are the public API (docs/api.md). Each is imported when it is first used: `import histo_monai`
alone loads neither torch nor numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from histo_monai.evaluation import metrics
    from histo_monai.slides import Box, Slide, SlideError, open_slide, tissue_mask
    from histo_monai.slides.annotations import Frame, Point, Region, read_annotations
    from histo_monai.slides.tiles.boxes import tile
    from histo_monai.utils.errors import InputError
    from histo_monai.wsi.api import (
        TrainedEncoder,
        TrainedModel,
        encode,
        heatmap,
        load_encoder,
        load_model,
        predict,
    )
    from histo_monai.wsi.heatmaps.heatmap import Heatmap

__version__ = "0.2.0"

__all__ = [
    "Box",
    "Frame",
    "Heatmap",
    "InputError",
    "Point",
    "Region",
    "Slide",
    "SlideError",
    "TrainedEncoder",
    "TrainedModel",
    "encode",
    "heatmap",
    "load_encoder",
    "load_model",
    "metrics",
    "open_slide",
    "predict",
    "read_annotations",
    "tile",
    "tissue_mask",
]

_MODULES = {
    "Box": "histo_monai.slides",
    "Frame": "histo_monai.slides.annotations",
    "Heatmap": "histo_monai.wsi.heatmaps.heatmap",
    "InputError": "histo_monai.utils.errors",
    "Point": "histo_monai.slides.annotations",
    "Region": "histo_monai.slides.annotations",
    "Slide": "histo_monai.slides",
    "SlideError": "histo_monai.slides",
    "TrainedEncoder": "histo_monai.wsi.api",
    "TrainedModel": "histo_monai.wsi.api",
    "encode": "histo_monai.wsi.api",
    "heatmap": "histo_monai.wsi.api",
    "load_encoder": "histo_monai.wsi.api",
    "load_model": "histo_monai.wsi.api",
    "open_slide": "histo_monai.slides",
    "predict": "histo_monai.wsi.api",
    "read_annotations": "histo_monai.slides.annotations",
    "tile": "histo_monai.slides.tiles.boxes",
    "tissue_mask": "histo_monai.slides",
}
"""Public name -> the module that defines it."""

_SUBMODULES = {"metrics": "histo_monai.evaluation.metrics"}
"""Public name -> the module that it stands for."""

_RENAMED: dict[str, tuple[str, str]] = {}
"""Earlier public name -> its present name, and the version without the earlier one."""


def __getattr__(name: str) -> object:
    if name in _RENAMED:
        new, removed_in = _RENAMED[name]
        import_module("histo_monai.utils.process.deprecation").warn_renamed(
            f"histo_monai.{name}", new, removed_in
        )
        return __getattr__(new)
    if name in _SUBMODULES:
        return import_module(_SUBMODULES[name])
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
