"""Python API of model files: features and predictions of patches, maps of slides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from histo_monai.models import task_model
from histo_monai.models.encoder import Encoder
from histo_monai.models.losses import Classification, Objective, Regression
from histo_monai.models.task_model import TaskModel
from histo_monai.slides import Box, Slide
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.training.device import precision, to_device
from histo_monai.training.prediction import single_view
from histo_monai.utils.errors import InputError
from histo_monai.wsi.heatmaps.heatmap import Heatmap
from histo_monai.wsi.inference.features import sight_of
from histo_monai.wsi.inference.heatmaps import map_slide
from histo_monai.wsi.inference.models import mapped_classes, model_plan, patch_models

SCORE = "score"
"""Map column of a model without classes."""


@dataclass(frozen=True)
class TrainedEncoder:
    """Encoder in evaluation mode.

    Attributes:
        network: patches (n, 3, P, P), float32, 0..1 -> features (n, D), float32; it normalizes its input.
        num_features: D.
        patch_px: P in training, px.
        mpp: finest resolution of the training patches, µm/px; None if unknown.
        description: JSON beside the file.
        path: encoder.safetensors or model.safetensors.
    """

    network: Encoder
    num_features: int
    patch_px: int
    mpp: float | None
    description: Mapping[str, Any]
    path: Path


@dataclass(frozen=True)
class TrainedModel:
    """Fine-tuned model or student in evaluation mode.

    Attributes:
        network: patches (n, 3, P, P), float32, 0..1 -> class logits (n, K) or scores (n, 1), float32.
        classes: names in the order of the logits; None for a score.
        patch_px: P, px.
        mpp: resolution of the training patches, µm/px; None if unknown.
        description: JSON beside the file.
        path: model.safetensors.
    """

    network: TaskModel
    classes: tuple[str, ...] | None
    patch_px: int
    mpp: float | None
    description: Mapping[str, Any]
    path: Path


def load_encoder(path: str | Path, device: str | None = None) -> TrainedEncoder:
    """Encoder from a file of a pretraining, a fine-tuned model or a student.

    Args:
        path: encoder.safetensors or model.safetensors, with its JSON beside it.
        device: torch device; None: a GPU if available, else the CPU.

    Raises:
        InputError: the file is missing, damaged or of another kind.
    """
    network, description = task_model.load_encoder(path)
    to_device(network.eval(), _device(device))
    sight = sight_of(description)
    return TrainedEncoder(network, network.num_features, sight.patch_px, sight.mpp, description, Path(path))


def load_model(path: str | Path, device: str | None = None) -> TrainedModel:
    """Fine-tuned model or student from its file.

    Args:
        path: model.safetensors, with its JSON beside it.
        device: torch device; None: a GPU if available, else the CPU.

    Raises:
        InputError: the file is missing, damaged or of another kind.
    """
    network, description = task_model.from_task_model(path)
    to_device(network.eval(), _device(device))
    classes = tuple(description["classes"]) if description["classes"] else None
    return TrainedModel(
        network, classes, description["patch_px"], description["mpp"], description, Path(path)
    )


def encode(
    encoder: TrainedEncoder,
    images: NDArray[np.uint8] | Slide,
    boxes: Sequence[Box] | None = None,
    *,
    batch_size: int = 256,
) -> NDArray[np.float32]:
    """Features of patches, shape (n, D), float32.

    Args:
        images: patches (n, 3, P, P), uint8, RGB; or an open slide, with `boxes`.
        boxes: patches of the slide with one common `side_px`; the slide is read batch by batch.
        batch_size: patches per batch.

    Raises:
        InputError: `images` or `boxes` have a wrong type, or a side that the encoder does not accept.
        SlideError: the slide is damaged, or more than 10 % coarser than a box.
    """
    return _over(encoder.network, encoder.network, _batches(images, boxes, batch_size), encoder.num_features)


def predict(
    model: TrainedModel,
    images: NDArray[np.uint8] | Slide,
    boxes: Sequence[Box] | None = None,
    *,
    batch_size: int = 256,
) -> NDArray[np.float32]:
    """Class probabilities or scores of patches.

    Args:
        images: patches (n, 3, P, P), uint8, RGB; or an open slide, with `boxes`. P is `model.patch_px`, at
            `model.mpp`.
        boxes: patches of the slide; the slide is read batch by batch.
        batch_size: patches per batch.

    Returns:
        Probabilities (n, K) in the order of `model.classes`, or scores (n,) in 0..1; float32.

    Raises:
        InputError: `images` or `boxes` have a wrong type, side or resolution.
        SlideError: the slide is damaged, or more than 10 % coarser than a box.
    """
    for box in boxes or ():
        if model.mpp is not None and not np.isclose(box.mpp, model.mpp):
            raise InputError(
                f"boxes: {box.mpp:g} µm/px, the model takes {model.mpp:g} µm/px. Fix: make boxes of mpp={model.mpp:g}"
            )
    objective: Objective = Classification(model.classes) if model.classes else Regression()
    batches = _batches(images, boxes, batch_size, side_px=model.patch_px)
    predictions = _over(
        model.network, lambda x: objective.predictions(model.network(x)), batches, len(model.classes or "1")
    )
    return predictions if model.classes else predictions[:, 0]


def heatmap(
    slide: Slide,
    model: TrainedModel,
    *,
    stride_um: float | None = None,
    positive: str | None = None,
    tissue_mpp: float = 16.0,
    min_tissue_fraction: float = 0.5,
    batch_size: int = 256,
    workers: int = 0,
) -> Heatmap:
    """Map of a slide: predictions for each grid cell with tissue, as in the command `map`.

    Args:
        slide: open slide.
        stride_um: distance between patches and side of a cell, µm, a whole number of patch pixels; None: side of a
            patch.
        positive: mapped class; None: tumor of two classes, else all classes.
        tissue_mpp: resolution of the tissue mask, µm/px.
        min_tissue_fraction: minimum tissue fraction of a cell, 0..1.
        batch_size: patches per batch.
        workers: reading processes; 0 reads in this process.

    Returns:
        Map; names of `values`: the mapped classes, or "score".

    Raises:
        InputError: the model has no µm/px or no class `positive`, or the stride is no whole number of patch pixels.
        SlideError: the slide is damaged, or more than 10 % coarser than the model's patches.
    """
    plan = model_plan(
        model.description,
        model.path,
        stride_um,
        tissue=TissueRules(tissue_mpp),
        min_tissue_fraction=min_tissue_fraction,
        batch_size=batch_size,
    )
    mapped = mapped_classes(model.classes, positive)
    device = _device_of(model.network)
    models = patch_models({SCORE: model.network}, model.classes, mapped, device)
    found = map_slide(slide.path, slide.mpp, models, plan, device=device, workers=workers)
    values = dict(zip(mapped or (SCORE,), found.values.values(), strict=True))
    return Heatmap(found.grid, found.cells, found.tissue, values)


def _over(
    network: torch.nn.Module,
    outputs: Callable[[torch.Tensor], torch.Tensor],
    batches: Iterator[NDArray[np.uint8]],
    width: int,
) -> NDArray[np.float32]:
    """Network outputs of all batches, (n, width)."""
    device = _device_of(network)
    parts = [np.empty((0, width), np.float32)]
    with torch.inference_mode(), precision(device):
        for images in batches:
            patches = torch.from_numpy(np.ascontiguousarray(images))
            view = single_view(patches.unsqueeze(1), images.shape[-1], device)
            parts.append(outputs(view).float().cpu().numpy())
    return np.concatenate(parts)


def _batches(
    images: NDArray[np.uint8] | Slide, boxes: Sequence[Box] | None, size: int, side_px: int | None = None
) -> Iterator[NDArray[np.uint8]]:
    """Patches in order, `size` per batch.

    Raises:
        InputError: wrong type, or another side than `side_px`.
    """
    if isinstance(images, Slide):
        if boxes is None:
            raise InputError(f"{images.path}: no boxes. Fix: give the boxes to read, as `tile` makes them")
        _check_sides({box.side_px for box in boxes}, side_px)
        for first in range(0, len(boxes), size):
            yield images.read_many(boxes[first : first + size])
        return
    if boxes is not None:
        raise InputError("boxes: given without a slide. Fix: give the open slide in place of the images")
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1] != 3:
        raise InputError(
            f"images: {images.dtype} {images.shape}, expected uint8 (n, 3, P, P). Fix: put channels first, scale to "
            "0..255"
        )
    _check_sides({*images.shape[2:]}, side_px)
    for first in range(0, len(images), size):
        yield images[first : first + size]


def _check_sides(sides: set[int], side_px: int | None) -> None:
    if len(sides) > 1 or (side_px is not None and sides - {side_px}):
        expected = "one side" if side_px is None else f"{side_px} px"
        raise InputError(
            f"patches: sides of {sorted(sides)} px, expected {expected}. Fix: read patches of that side"
        )


def _device(name: str | None) -> torch.device:
    return torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))


def _device_of(network: torch.nn.Module) -> torch.device:
    return next(network.parameters()).device
