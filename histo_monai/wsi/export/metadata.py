"""Configs of a bundle: metadata.json (description) and inference.json (map of a slide)."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import Any

from histo_monai import __version__
from histo_monai.models.card import INTENDED, pretraining
from histo_monai.models.description import predicted_px
from histo_monai.utils import escapes

SCHEMA = (
    "https://github.com/Project-MONAI/MONAI-extra-test-data/releases/download/0.8.1/meta_schema_20240725.json"
)
_NEEDED = ("pytorch-ignite", "openslide-python", "torchvision", "timm")
_REFERENCE = (
    "Srinidhi CL, Kim SW, Chen FD, Martel AL. Self-supervised driven consistency training for annotation efficient "
    "histopathology image analysis. Medical Image Analysis 75, 2022. https://doi.org/10.1016/j.media.2021.102256"
)


def metadata(about: Mapping[str, Any], authors: str) -> dict[str, Any]:
    """metadata.json of the MONAI bundle specification, with the fields of the model card.

    Texts are escaped because MONAI's parser reads them as config.

    Args:
        about: JSON of the model.
        authors: of the model.
    """
    classes, side = about["classes"], about["patch_px"]
    names = list(classes) if classes else ["score"]
    pixels = {
        **{"type": "image", "format": "magnitude", "modality": "brightfield microscopy", "num_channels": 3},
        **{"spatial_shape": [side, side], "dtype": "float32", "value_range": [0, 1], "is_patch_data": True},
        "channel_def": {"0": "red", "1": "green", "2": "blue"},
    }
    outputs = {
        **{"type": "probabilities", "format": "classes", "modality": "n/a", "num_channels": len(names)},
        **{"spatial_shape": [], "dtype": "float32", "value_range": [], "is_patch_data": True},
        "channel_def": {str(number): name for number, name in enumerate(names)},
    }
    what = f"probabilities of {', '.join(names)}" if classes else "a score"
    metrics = {
        key: value
        for key, value in (about.get("metrics") or {}).items()
        if key.startswith("validation") and isinstance(value, int | float)
    }
    content = {
        "schema": SCHEMA,
        "version": "1.0.0",
        "changelog": {"1.0.0": "exported"},
        "monai_version": importlib.metadata.version("monai"),
        "pytorch_version": importlib.metadata.version("torch").partition("+")[0],
        "numpy_version": importlib.metadata.version("numpy"),
        "required_packages_version": {
            "histo_monai": __version__,
            **{name: importlib.metadata.version(name) for name in _NEEDED},
        },
        "name": f"{about['dataset']} {about['stage']}",
        "task": f"{what} of patches of {side} px at {about['mpp']:g} µm/px, and maps of whole slides",
        "description": f"{about['encoder']['name']}, pretraining: {pretraining(about)}; stage {about['stage']}. "
        f"The network gives {'logits' if classes else 'a score'}; "
        "inference.json maps a slide.",
        "authors": authors,
        "copyright": f"Copyright (c) {authors}",
        "data_source": f"{about['source']}: {about['dataset']}",
        "data_type": "whole slides that OpenSlide or cuCIM read",
        "image_classes": "RGB, 0..1; normalization is part of the network",
        "pred_classes": ", ".join(f"{number}: {name}" for number, name in enumerate(names)),
        "eval_metrics": metrics,
        "intended_use": INTENDED,
        "references": [_REFERENCE],
        "network_data_format": {
            "inputs": {"image": pixels},
            "outputs": {"pred": outputs},
            "post_processed_outputs": {"pred": {**outputs, "value_range": [0, 1]}},
        },
    }
    return escapes.monai(content)


def inference(about: Mapping[str, Any], look: Mapping[str, Any]) -> dict[str, Any]:
    """inference.json: the config that maps the slide of `--slide` with `python -m monai.bundle run`.

    It holds no user text, because MONAI's parser executes texts; it refers to the description beside the weights.

    Args:
        look: tissue_mpp, min_tissue_fraction, batch_size and artefacts of a map.
    """
    after = (
        {"softmax": True, "dim": 1} if about["classes"] else {"other": "$lambda x: x.float().clamp(0.0, 1.0)"}
    )
    parts = "histo_monai.wsi.export.parts"
    middle = predicted_px(about)
    stride_um = None if middle == about["patch_px"] else middle * about["mpp"]
    return {
        "imports": ["$import torch"],
        "bundle_root": ".",
        "slide": "slide.svs",
        "mpp": None,
        "stride_um": stride_um,
        "output_dir": "$@bundle_root + '/eval'",
        "workers": 0,
        "device": "$torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')",
        "description": "$@bundle_root + '/models/model.json'",
        "network_def": {"_target_": f"{parts}.task_network", "description": "@description"},
        "network": "$@network_def.to(@device)",
        "loader": {
            "_target_": f"{parts}.TissueLoader",
            "slide": "@slide",
            "mpp": "@mpp",
            "patch_px": about["patch_px"],
            "patch_mpp": about["mpp"],
            "stride_um": "@stride_um",
            **look,
            "device": "@device",
            "workers": "@workers",
        },
        "inferer": {"_target_": "monai.inferers.SimpleInferer"},
        "postprocessing": {"_target_": "monai.transforms.Activationsd", "keys": "pred", **after},
        "handlers": [
            {
                "_target_": "monai.handlers.CheckpointLoader",
                "load_path": "$@bundle_root + '/models/model.pt'",
                "load_dict": {"model": "@network"},
                "map_location": "@device",
            },
            {
                "_target_": f"{parts}.MapWriter",
                "loader": "@loader",
                "folder": "@output_dir",
                "description": "@description",
            },
        ],
        "evaluator": {
            "_target_": "monai.engines.SupervisedEvaluator",
            "device": "@device",
            "val_data_loader": "@loader",
            "network": "@network",
            "inferer": "@inferer",
            "postprocessing": "@postprocessing",
            "val_handlers": "@handlers",
            "decollate": False,
        },
        "run": ["$@evaluator.run()"],
    }
