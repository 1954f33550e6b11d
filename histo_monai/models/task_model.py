"""The networks that are fine-tuned: a pretrained trunk and the head that its method brings (paper, section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from histo_monai.models.checkpoint import load_into, load_model, read_description
from histo_monai.models.description import KEPT, check_encoder, check_task_model
from histo_monai.models.encoder import Encoder, encoder_from
from histo_monai.models.heads import PAIR_FEATURES, PairMLP
from histo_monai.models.layers import at_full_precision
from histo_monai.utils.errors import InputError


class PairHead(nn.Module):
    """The head over features of RSP: pair MLP and a linear layer over three pairs, 768 -> K.

    In fine-tuning the three branches see the same image, so all three pairs are (h, h) and give the same 256 numbers:
    they are computed once and repeated. Outputs and gradients are those of the network with three branches.

    Args:
        num_features: D of the encoder.
        num_outputs: K.
    """

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__()
        self.pair_mlp = PairMLP(num_features)
        self.linear = nn.Linear(3 * PAIR_FEATURES, num_outputs)

    def before_linear(self, features: torch.Tensor) -> torch.Tensor:
        """(N, D) -> (N, 768), what the linear layer sees."""
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
        """What the linear layer sees: the features."""
        return features

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """(N, D) -> (N, K)."""
        return at_full_precision(self.linear, features)


_LINEAR = "linear"
HEADS: dict[str, type[PairHead] | type[LinearHead]] = {"pair": PairHead, _LINEAR: LinearHead}
"""Name in the description of an encoder -> head. Parts of a head that are pretrained have the encoder's names."""


class TaskModel(nn.Module):
    """Patches -> outputs of the task: logits of K classes, or K = 1 score.

    Input  (N, 3, H, W), float32, 0..1
    Output (N, K), float32 whatever autocast does

    Args:
        encoder: becomes part of it.
        head: a name in `HEADS`.
        num_outputs: K.
    """

    def __init__(self, encoder: Encoder, head: str, num_outputs: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = HEADS[head](encoder.num_features, num_outputs)

    def parameter_groups(self, lr: float, backbone_lr_factor: float) -> list[dict[str, Any]]:
        """For an optimizer: head and trunk, the latter at a part of the rate; one group where they have the same."""
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
    """A model to fine-tune: all that the encoder's file holds is loaded, the rest is random (`torch.manual_seed`).

    Args:
        path: encoder.safetensors of a pretraining.
        num_outputs: K.

    Returns:
        The model and the description of the encoder.

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
                f"{path}: a head {description['head']!r} has no {part}; run the pretrain stage again"
            )
        load_into(parts[part], state, f"{part}.", path)
    return model, description


def first_stages(
    model: TaskModel, description: Mapping[str, Any], stages: int
) -> tuple[TaskModel, dict[str, Any]]:
    """A model that ends after some stages of another's encoder, and the description of what it starts from.

    Its head is linear and random (`torch.manual_seed`): another, and what is pretrained of it, fits a whole encoder.

    Args:
        model: as `from_encoder` gives it; its encoder is used, not copied.
        stages: how many, see `Encoder.end_after`.

    Raises:
        InputError: see `Encoder.end_after`.
    """
    model.encoder.end_after(stages)
    shorter = TaskModel(model.encoder, _LINEAR, model.head.linear.out_features)
    return shorter, {**description, "head": _LINEAR, "encoder": model.encoder.about()}


def from_task_model(path: str | Path) -> tuple[TaskModel, dict[str, Any]]:
    """A fine-tuned model or a student, as its stage wrote it, and its description.

    Raises:
        InputError: the file is missing, damaged, or not a model of a task; names it.
    """
    path = Path(path)
    state, description = load_model(path)
    model = _task_model(description, path)
    load_into(model, state, "", path)
    return model, description


def task_model_from(path: Path) -> tuple[TaskModel, dict[str, Any]]:
    """The network that a JSON beside a fine-tuned model or a student describes, its weights random, and the JSON.

    Raises:
        InputError: the JSON is missing, not as it was saved, or not of a model of a task; names it.
    """
    description = read_description(path)
    return _task_model(description, path), description


def _task_model(description: Mapping[str, Any], path: Path) -> TaskModel:
    check_task_model(description, HEADS, path)
    encoder = _encoder(description, path)
    return TaskModel(encoder, description["head"], num_outputs(description["classes"]))


def load_encoder(path: str | Path) -> tuple[Encoder, dict[str, Any]]:
    """The encoder of a pretraining, or that of a fine-tuned model or a student, and the description of the file.

    Raises:
        InputError: the file is missing, damaged, or none of these; names it.
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
    """One output per class; one for a score, where there are no classes."""
    return len(classes) if classes else 1


def describe_task_model(
    encoder: Mapping[str, Any], *, classes: list[str] | None, patch_px: int, mpp: float | None
) -> dict[str, Any]:
    """What a model of a task is, for the JSON beside it.

    Args:
        encoder: the description of what it started from.
        classes: their names by number; None for a score.
        patch_px: side of the patches that it sees.
        mpp: their resolution, µm/px; None where it is not known or not one.
    """
    return {
        "kind": "task model",
        **{name: encoder[name] for name in KEPT},
        "classes": classes,
        "patch_px": patch_px,
        "mpp": mpp,
    }
