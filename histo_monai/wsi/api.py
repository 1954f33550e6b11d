"""Models of files for use from Python: features and predictions of patches, maps of slides."""

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
from histo_monai.training.device import precision, to_device
from histo_monai.training.prediction import single_view
from histo_monai.utils.errors import InputError
from histo_monai.wsi.heatmaps.heatmap import Heatmap
from histo_monai.wsi.inference.features import sight_of
from histo_monai.wsi.inference.heatmaps import map_slide
from histo_monai.wsi.inference.models import mapped_classes, model_plan, patch_models

SCORE = "score"
"""Column of the map of a model without classes."""


@dataclass(frozen=True)
class TrainedEncoder:
    """An encoder, in evaluation mode.

    Attributes:
        network: Patches (n, 3, P, P), float32, 0..1 -> features (n, D), float32; normalization is part of it.
        num_features: D.
        patch_px: P in training, px.
        mpp: Resolution of the patches in training, µm/px, of several the finest; None where it is not known.
        description: The JSON beside the file.
        path: The file.
    """

    network: Encoder
    num_features: int
    patch_px: int
    mpp: float | None
    description: Mapping[str, Any]
    path: Path


@dataclass(frozen=True)
class TrainedModel:
    """A fine-tuned model or a student, in evaluation mode.

    Attributes:
        network: Patches (n, 3, P, P), float32, 0..1 -> logits of the classes (n, K), or scores (n, 1), float32.
        classes: Their names, in the order of the logits; None for a score.
        patch_px: P, px.
        mpp: Resolution of the patches in training, µm/px; None where it is not known.
        description: The JSON beside the file.
        path: The file.
    """

    network: TaskModel
    classes: tuple[str, ...] | None
    patch_px: int
    mpp: float | None
    description: Mapping[str, Any]
    path: Path


def load_encoder(path: str | Path, device: str | None = None) -> TrainedEncoder:
    """The encoder of a pretraining, of a fine-tuned model or of a student.

    Args:
        path: encoder.safetensors or model.safetensors; its JSON lies beside it.
        device: As torch names it; None: the GPU where torch finds one, else the CPU.

    Raises:
        InputError: The file is missing, damaged or of another kind.
    """
    network, description = task_model.load_encoder(path)
    to_device(network.eval(), _device(device))
    sight = sight_of(description)
    return TrainedEncoder(network, network.num_features, sight.patch_px, sight.mpp, description, Path(path))


def load_model(path: str | Path, device: str | None = None) -> TrainedModel:
    """A fine-tuned model or a student.

    Args:
        path: model.safetensors; its JSON lies beside it.
        device: As torch names it; None: the GPU where torch finds one, else the CPU.

    Raises:
        InputError: The file is missing, damaged or of another kind.
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
    """Features of patches.

    Args:
        encoder: From `load_encoder`.
        images: Patches, shape (n, 3, P, P), uint8, RGB; or an open slide, with `boxes`.
        boxes: Patches of the slide, all of one `side_px`; read a batch at a time.
        batch_size: Patches at a time.

    Returns:
        Shape (n, D), float32, in the order of the patches.

    Raises:
        InputError: `images` or `boxes` are of another kind, or of a side that the encoder cannot take.
        SlideError: The slide is damaged, or coarser than a box by more than 10 %.
    """
    return _over(encoder.network, encoder.network, _batches(images, boxes, batch_size), encoder.num_features)


def predict(
    model: TrainedModel,
    images: NDArray[np.uint8] | Slide,
    boxes: Sequence[Box] | None = None,
    *,
    batch_size: int = 256,
) -> NDArray[np.float32]:
    """Probabilities of the classes, or scores, of patches.

    Args:
        model: From `load_model`.
        images: Patches, shape (n, 3, P, P), uint8, RGB; or an open slide, with `boxes`. P is `model.patch_px`, at
            `model.mpp`.
        boxes: Patches of the slide; read a batch at a time.
        batch_size: Patches at a time.

    Returns:
        Float32, in the order of the patches: probabilities, shape (n, K), in the order of `model.classes`; or scores,
        shape (n,), 0..1.

    Raises:
        InputError: `images` or `boxes` are of another kind, side or resolution.
        SlideError: The slide is damaged, or coarser than a box by more than 10 %.
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
    """The map of a slide: predictions for each cell of its grid that holds tissue, as the command `map` makes it.

    Args:
        slide: Open.
        model: From `load_model`.
        stride_um: From one patch to the next, and side of a cell, µm, a whole number of patch pixels; None: side by
            side.
        positive: Class that is mapped; None: tumor where that is one of two classes, else all classes.
        tissue_mpp: Resolution of the tissue mask, µm/px.
        min_tissue_fraction: Least tissue in a cell, 0..1.
        batch_size: Patches at a time.
        workers: Reading processes; 0 reads in this one.

    Returns:
        The map. Names of `values`: the mapped classes, or "score".

    Raises:
        InputError: The model does not know its µm/px, or has no class `positive`; or the stride is no whole number of
            patch pixels.
        SlideError: The slide is damaged, or coarser than the model's patches by more than 10 %.
    """
    plan = model_plan(
        model.description,
        model.path,
        stride_um,
        tissue_mpp=tissue_mpp,
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
    """Outputs of all batches, shape (n, width)."""
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
    """Patches in order, `size` at a time.

    Raises:
        InputError: They are no patches, or of another side than `side_px`.
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
        raise InputError(f"patches: sides of {sorted(sides)} px, expected {expected}. Fix: read them so")


def _device(name: str | None) -> torch.device:
    return torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))


def _device_of(network: torch.nn.Module) -> torch.device:
    return next(network.parameters()).device
