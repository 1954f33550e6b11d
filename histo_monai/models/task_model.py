"""Fine-tuned networks: pretrained backbone and head (paper, section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from histo_monai.models.checkpoint import load_into, load_model, read_description
from histo_monai.models.description import COPIED_KEYS, check_encoder, check_task_model
from histo_monai.models.encoder import Encoder, encoder_from
from histo_monai.models.heads.mixture import Mixture
from histo_monai.models.heads.task import LINEAR, TRAINED_HEADS
from histo_monai.models.layers import DOWN, UP, LowRankLinear
from histo_monai.models.reference import without_reference
from histo_monai.models.settings import Depth
from histo_monai.models.sharing.folds import (
    ENCODER_PREFIX,
    WHOLE_MODEL,
    WholeModel,
    adapted_layers,
    check_whole,
    with_encoder,
)
from histo_monai.utils.errors import InputError

MIXTURE = "mixture"
"""Name of the head of a model on frozen features; its description stands beside it, by the same name."""


class TaskModel(nn.Module):
    """Outputs of a task from patches: logits of K classes, or K = 1 score.

    Input  (N, 3, H, W), float32, 0..1
    Output (N, K), float32 under autocast too

    Args:
        head: a name in `TRAINED_HEADS`, or a fitted mixture.
        num_outputs: K.
    """

    def __init__(self, encoder: Encoder, head: str | Mixture, num_outputs: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head: Any = (
            head if isinstance(head, Mixture) else TRAINED_HEADS[head](encoder.num_features, num_outputs)
        )

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """Outputs of a batch of patches."""
        return self.head(self.encoder(patches))


Content = tuple[Mapping[str, torch.Tensor], Mapping[str, Any]]
"""Tensors and description of a model's file (`load_model`)."""


def from_encoder(
    path: str | Path, num_outputs: int, content: Content | None = None
) -> tuple[TaskModel, dict[str, Any]]:
    """Model to fine-tune, with the tensors of the encoder's file; all others are random (`torch.manual_seed`).

    Args:
        path: encoder.safetensors of a pretraining.
        num_outputs: K.
        content: of the file, read before; the encoder's parameters share its memory.

    Returns:
        Model, and description of the encoder.

    Raises:
        InputError: the file is missing, damaged, or not an encoder of this version; names it.
    """
    path = Path(path)
    state, description = content or load_model(path)
    check_encoder(description, TRAINED_HEADS, path)
    model = TaskModel(_encoder(description, path), description["head"], num_outputs)
    load_into(model.encoder, state, ENCODER_PREFIX, path, shares_memory=True)
    rest = sorted({name.split(".")[0] for name in state} - {"encoder"})
    parts = dict(model.head.named_children())
    for part in rest:
        if part not in parts:
            raise InputError(
                f"{path}: head {description['head']!r} has no {part}. Fix: run the stage pretrain again."
            )
        load_into(parts[part], state, f"{part}.", path)
    return model, dict(description)


def first_stages(
    model: TaskModel, description: Mapping[str, Any], stages: int
) -> tuple[TaskModel, dict[str, Any]]:
    """Model with the first stages of an encoder, and the description of its start.

    The head is linear and random (`torch.manual_seed`); pretrained head parts fit the full depth only.

    Args:
        model: from `from_encoder`; its encoder is used, not copied.
        stages: number of stages.

    Raises:
        InputError: the encoder has fewer stages, or none.
    """
    model.encoder.end_after(stages)
    shorter = TaskModel(model.encoder, LINEAR, model.head.linear.out_features)
    return shorter, {**description, "head": LINEAR, "encoder": model.encoder.about()}


def from_task_model(path: str | Path, whole: WholeModel | None = None) -> tuple[TaskModel, dict[str, Any]]:
    """Fine-tuned model or student from its file, and its description.

    Args:
        whole: the model with all labels, read before, where `path` is this model or one of its folds. Encoder
            parameters of equal values share its memory, and adapters stay apart from their weights.

    Raises:
        InputError: the file is missing, damaged, or not a model of a task; names it.
    """
    path = Path(path)
    if whole is not None:
        return _sharing(path, whole)
    state, description = load_model(path)
    model = _task_model(description, path)
    state = without_reference(state)
    load_into(model, with_encoder(state, description, model.state_dict(), path), "", path, shares_memory=True)
    return model, description


def _sharing(path: Path, whole: WholeModel) -> tuple[TaskModel, dict[str, Any]]:
    state, description = (whole.state, whole.description) if path == whole.path else load_model(path)
    check_whole(description, path, whole.path)
    model = _task_model(description, path)
    own = {name: tensor.to(whole.device) for name, tensor in without_reference(state).items()}
    for layer in adapted_layers(own):
        LowRankLinear.of(model.get_submodule(layer), own[layer + DOWN], own[layer + UP])
    is_part = path == whole.path or WHOLE_MODEL in description
    for name in model.state_dict():
        given = whole.state.get(name) if name.startswith(ENCODER_PREFIX) else None
        if given is not None and (
            (name not in own and is_part) or (name in own and torch.equal(own[name], given))
        ):
            own[name] = given
        elif name in own:
            own[name] = own[name].clone()
    load_into(model, own, "", path, shares_memory=True)
    return model, dict(description)


def load_head(path: Path) -> tuple[Mixture, tuple[Depth, ...], list[str] | None]:
    """Head of a model on a frozen encoder; the depths of the encoder that it reads, and its classes.

    Raises:
        InputError: the file is missing, damaged, or its network trained as a whole; names it.
    """
    state, description = load_model(path)
    check_task_model(description, [MIXTURE], path)
    about, classes = description["encoder"], description["classes"]
    head = _mixture(description, about["num_features"], path)
    load_into(head, state, "head.", path)
    return head, (*about.get("earlier_stages", ()), about.get("stages")), classes


def task_model_from(path: Path) -> tuple[TaskModel, dict[str, Any]]:
    """Network of a model's JSON with random weights, and the JSON's content.

    Raises:
        InputError: the JSON is missing, changed, or not of a fine-tuned model or student; names it.
    """
    description = read_description(path)
    return _task_model(description, path), description


def _task_model(description: Mapping[str, Any], path: Path) -> TaskModel:
    check_task_model(description, _HEADS, path)
    encoder, classes = _encoder(description, path), description["classes"]
    if description["head"] != MIXTURE:
        return TaskModel(encoder, description["head"], num_outputs(classes))
    return TaskModel(encoder, _mixture(description, encoder.num_features, path), num_outputs(classes))


def _mixture(description: Mapping[str, Any], num_features: int, path: Path) -> Mixture:
    classes = description["classes"]
    try:
        return Mixture.from_about(description.get(MIXTURE), num_features, len(classes) if classes else None)
    except ValueError as error:
        raise InputError(
            f"{path.with_suffix('.json')}: {error}. Fix: run the stage that makes it again."
        ) from None


_HEADS = (*TRAINED_HEADS, MIXTURE)


def load_encoder(path: str | Path) -> tuple[Encoder, dict[str, Any]]:
    """Encoder of a pretraining, fine-tuned model or student, and the description of the file.

    Raises:
        InputError: the file is missing, damaged, or of another kind; names it.
    """
    path = Path(path)
    state, description = load_model(path)
    _check(description, path)
    encoder = _encoder(description, path)
    wanted = [ENCODER_PREFIX + name for name in encoder.state_dict()]
    load_into(
        encoder, with_encoder(state, description, wanted, path), ENCODER_PREFIX, path, shares_memory=True
    )
    return encoder, description


def describe_file(path: Path) -> dict[str, Any]:
    """Description of a pretraining's encoder, a fine-tuned model or student, without its network.

    Raises:
        InputError: the JSON beside the file is missing, changed, or of another kind; names it.
    """
    description = read_description(path.with_suffix(".json"))
    _check(description, path)
    return description


def _check(description: Mapping[str, Any], path: Path) -> None:
    if description.get("kind") == "task model":
        check_task_model(description, _HEADS, path)
    else:
        check_encoder(description, TRAINED_HEADS, path)


def _encoder(description: Mapping[str, Any], path: Path) -> Encoder:
    try:
        return encoder_from(description["encoder"])
    except InputError as error:
        raise InputError(f"{path.with_suffix('.json')}: {error}") from None


def num_outputs(classes: list[str] | None) -> int:
    """Number of outputs: one per class, or one for a score."""
    return len(classes) if classes else 1


def describe_task_model(
    encoder: Mapping[str, Any], *, classes: list[str] | None, patch_px: int, mpp: float | None
) -> dict[str, Any]:
    """Description of a task model, for the JSON beside it.

    Args:
        encoder: description of the start.
        classes: names by number; None for a score.
        mpp: resolution of the patches, µm/px; None where unknown or not unique.
    """
    return {
        "kind": "task model",
        **{name: encoder[name] for name in (*COPIED_KEYS, *([MIXTURE] if MIXTURE in encoder else []))},
        "classes": classes,
        "patch_px": patch_px,
        "mpp": mpp,
    }
