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
from histo_monai.models.heads import PAIR_FEATURES, PairMLP
from histo_monai.models.layers import at_full_precision
from histo_monai.utils.errors import InputError


class PairHead(nn.Module):
    """Head over features of RSP: pair MLP and a linear layer over three pairs, 768 -> K.

    In fine-tuning all three branches have one image, so the three pairs (h, h) have equal 256 numbers: computed once
    and repeated. Outputs and gradients equal the network with three branches.

    Args:
        num_features: D of the encoder.
        num_outputs: K.
    """

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__()
        self.pair_mlp = PairMLP(num_features)
        self.linear = nn.Linear(3 * PAIR_FEATURES, num_outputs)

    def before_linear(self, features: torch.Tensor) -> torch.Tensor:
        """(N, D) -> (N, 768), input of the linear layer."""
        return at_full_precision(self.pair_mlp, features, features).repeat(1, 3)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """(N, D) -> (N, K)."""
        return at_full_precision(self.linear, self.before_linear(features))


class LinearHead(nn.Module):
    """One linear layer over the features, D -> K.

    Args:
        num_features: D of the encoder.
        num_outputs: K.
    """

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_features, num_outputs)

    def before_linear(self, features: torch.Tensor) -> torch.Tensor:
        """Input of the linear layer: the features."""
        return features

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """(N, D) -> (N, K)."""
        return at_full_precision(self.linear, features)


_LINEAR = "linear"
HEADS: dict[str, type[PairHead] | type[LinearHead]] = {"pair": PairHead, _LINEAR: LinearHead}
"""Name in the description of an encoder -> head. Pretrained parts of a head have the encoder's names."""


class TaskModel(nn.Module):
    """Outputs of a task from patches: logits of K classes, or K = 1 score.

    Input  (N, 3, H, W), float32, 0..1
    Output (N, K), float32 under autocast too

    Args:
        head: a name in `HEADS`.
        num_outputs: K.
    """

    def __init__(self, encoder: Encoder, head: str, num_outputs: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = HEADS[head](encoder.num_features, num_outputs)

    def parameter_groups(self, lr: float, backbone_lr_factor: float) -> list[dict[str, Any]]:
        """Parameter groups of head and backbone with their learning rates; one group for equal rates."""
        if backbone_lr_factor == 1.0:
            return [{"params": list(self.parameters()), "lr": lr}]
        return [
            {"params": list(self.head.parameters()), "lr": lr},
            {"params": list(self.encoder.parameters()), "lr": lr * backbone_lr_factor},
        ]

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """Outputs of a batch of patches."""
        return self.head(self.encoder(patches))


def from_encoder(path: str | Path, num_outputs: int) -> tuple[TaskModel, dict[str, Any]]:
    """Model to fine-tune, with the tensors of the encoder's file; all others are random (`torch.manual_seed`).

    Args:
        path: encoder.safetensors of a pretraining.
        num_outputs: K.

    Returns:
        Model, and description of the encoder.

    Raises:
        InputError: the file is missing, damaged, or not an encoder of this version; names it.
    """
    path = Path(path)
    state, description = load_model(path)
    check_encoder(description, HEADS, path)
    model = TaskModel(_encoder(description, path), description["head"], num_outputs)
    load_into(model.encoder, state, "encoder.", path)
    rest = sorted({name.split(".")[0] for name in state} - {"encoder"})
    parts = dict(model.head.named_children())
    for part in rest:
        if part not in parts:
            raise InputError(
                f"{path}: head {description['head']!r} has no {part}. Fix: run the stage pretrain again."
            )
        load_into(parts[part], state, f"{part}.", path)
    return model, description


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
    shorter = TaskModel(model.encoder, _LINEAR, model.head.linear.out_features)
    return shorter, {**description, "head": _LINEAR, "encoder": model.encoder.about()}


def from_task_model(path: str | Path) -> tuple[TaskModel, dict[str, Any]]:
    """Fine-tuned model or student from its file, and its description.

    Raises:
        InputError: the file is missing, damaged, or not a model of a task; names it.
    """
    path = Path(path)
    state, description = load_model(path)
    model = _task_model(description, path)
    load_into(model, state, "", path)
    return model, description


def task_model_from(path: Path) -> tuple[TaskModel, dict[str, Any]]:
    """Network of a model's JSON with random weights, and the JSON's content.

    Raises:
        InputError: the JSON is missing, changed, or not of a fine-tuned model or student; names it.
    """
    description = read_description(path)
    return _task_model(description, path), description


def _task_model(description: Mapping[str, Any], path: Path) -> TaskModel:
    check_task_model(description, HEADS, path)
    encoder = _encoder(description, path)
    return TaskModel(encoder, description["head"], num_outputs(description["classes"]))


def load_encoder(path: str | Path) -> tuple[Encoder, dict[str, Any]]:
    """Encoder of a pretraining, fine-tuned model or student, and the description of the file.

    Raises:
        InputError: the file is missing, damaged, or of another kind; names it.
    """
    path = Path(path)
    state, description = load_model(path)
    check = check_task_model if description.get("kind") == "task model" else check_encoder
    check(description, HEADS, path)
    encoder = _encoder(description, path)
    load_into(encoder, state, "encoder.", path)
    return encoder, description


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
        **{name: encoder[name] for name in COPIED_KEYS},
        "classes": classes,
        "patch_px": patch_px,
        "mpp": mpp,
    }
