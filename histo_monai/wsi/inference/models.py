"""Patch models for maps: mapped outputs and patch resolution."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from histo_monai.models.description import predicted_px
from histo_monai.models.losses import Classification, Objective, Regression
from histo_monai.models.reference import HeadWithDistance, load_reference
from histo_monai.models.shared_backbone import SharedBackbone
from histo_monai.models.task_model import TaskModel, from_task_model
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.training.device import channels_last
from histo_monai.utils.errors import InputError
from histo_monai.wsi.heatmaps.heatmap import IN_TRAINING, column_of

TUMOR = "tumor"
"""Default mapped class of two."""


@dataclass(frozen=True)
class MapPlan:
    """Settings of a slide's map.

    Attributes:
        patch_px: side of the patches.
        mpp: µm/px of the patches.
        stride_um: distance between patches and side of a cell, µm, a whole number of patch pixels.
        tissue: rules for the tissue that is used.
        min_tissue_fraction: minimum tissue fraction of a cell, 0..1.
        batch_size: patches per batch.
    """

    patch_px: int
    mpp: float
    stride_um: float
    tissue: TissueRules
    min_tissue_fraction: float
    batch_size: int

    @property
    def settings(self) -> dict[str, float | str]:
        """Settings of an origin; without artefacts, those of earlier versions."""
        names = self.tissue.artefacts
        return {
            "patch_px": self.patch_px,
            "mpp": self.mpp,
            "stride_um": self.stride_um,
            "tissue_mpp": self.tissue.mpp,
            "min_tissue_fraction": self.min_tissue_fraction,
            "batch_size": self.batch_size,
            **({"artefacts": " ".join(names)} if names else {}),
        }


@dataclass(frozen=True)
class PatchModels:
    """Models of one task, and their mapped values.

    Attributes:
        names: model names.
        network: patches (n, 3, P, P), float32, 0..1 -> name -> outputs (n, K); in evaluation mode.
        values: outputs (n, K) -> mapped values (n, M), 0..1.
        classes: names of the M classes; empty for a score.
        with_distance: models whose last output is the distance to their labeled training patches.
    """

    names: Sequence[str]
    network: Callable[[torch.Tensor], Mapping[str, torch.Tensor]]
    values: Callable[[torch.Tensor], torch.Tensor]
    classes: tuple[str, ...]
    with_distance: frozenset[str] = frozenset()

    def columns(self, name: str) -> list[str]:
        """Column names of a model, in the order of `values`."""
        return columns_of(name, self.classes)


def columns_of(name: str, classes: tuple[str, ...]) -> list[str]:
    """Column names of a model in a csv of scores: one for each mapped class, or one in all."""
    return [column_of(name, label) for label in classes] if len(classes) > 1 else [name]


def mapped_classes(classes: Sequence[str] | None, positive: str | None) -> tuple[str, ...]:
    """Classes whose probabilities are mapped; empty for a score.

    Args:
        classes: of the model; None for a score.
        positive: requested class, case-insensitive; None: tumor of two classes, else all.

    Raises:
        InputError: the model has no such class.
    """
    if not classes:
        if positive is not None:
            raise InputError(f"class {positive!r} is unknown: the model outputs a score. Fix: name no class")
        return ()
    if positive is None:
        tumor = tuple(name for name in classes if name.casefold() == TUMOR)
        return tumor if len(classes) == 2 and tumor else tuple(classes)
    same = [name for name in classes if name.casefold() == positive.casefold()]
    named = [name for name in same if name == positive] or same
    if len(named) != 1:
        raise InputError(f"class {positive!r} is unknown. Fix: name one of {', '.join(classes)}")
    return (named[0],)


def values_of(
    classes: Sequence[str] | None, mapped: tuple[str, ...]
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Function from outputs to mapped values: class probabilities, or the score.

    Raises:
        InputError: the model lacks a class, or outputs classes instead of a score or a score instead of classes.
    """
    if not set(mapped) <= set(classes or ()) or bool(classes) != bool(mapped):
        wanted = f"the classes {list(mapped)}" if mapped else "a score"
        raise InputError(
            f"{wanted} requested, but the model outputs {f'the classes {classes}' if classes else 'a score'}"
        )
    objective: Objective = Classification(classes) if classes else Regression()
    columns = [list(classes).index(name) for name in mapped] if classes else [0]
    return lambda outputs: objective.predictions(outputs)[:, columns]


def patches_mpp(description: Mapping[str, Any], path: Path) -> float:
    """µm/px of a task model's patches.

    Raises:
        InputError: the model's description has none; names the model.
    """
    mpp = description.get("mpp")
    if mpp is None:
        raise InputError(
            f"{path}: no µm/px, as it was trained on images or on squares of several mpp. Fix: give all rows of "
            "patches.csv one mpp, and run finetune again"
        )
    return float(mpp)


def model_plan(
    description: Mapping[str, Any],
    path: Path,
    stride_um: float | None,
    *,
    tissue: TissueRules,
    min_tissue_fraction: float,
    batch_size: int,
) -> MapPlan:
    """Map settings with the patch side and resolution of a model's training.

    Args:
        description: of the model.
        path: of the model, for messages.
        stride_um: as in `MapPlan`; None: side of a patch.

    Raises:
        InputError: the model has no µm/px.
    """
    mpp, patch_px = patches_mpp(description, path), description["patch_px"]
    if stride_um is None:
        stride_um = predicted_px(description) * mpp
    return MapPlan(patch_px, mpp, stride_um, tissue, min_tissue_fraction, batch_size)


def load_models(
    paths: Mapping[str, Path], mapped: tuple[str, ...], settings: MapPlan, device: torch.device
) -> PatchModels:
    """Models of one task by name, on `device`; common backbone layers run once.

    Raises:
        InputError: a file holds no task model, or a model with another patch side, µm/px or classes; names it.
    """
    networks, with_distance = {}, set[str]()
    known: list[list[str] | None] = []
    for name, path in paths.items():
        networks[name], description = from_task_model(path)
        classes, its_px, its_mpp = description["classes"], description["patch_px"], description.get("mpp")
        if its_px != settings.patch_px or not math.isclose(its_mpp or settings.mpp, settings.mpp):
            raise InputError(
                f"{path}: trained on patches of {its_px} px at {its_mpp} µm/px, not {settings.patch_px} px at "
                f"{settings.mpp} µm/px. Fix: map at its own µm/px, or run finetune again"
            )
        if known and classes != known[-1]:
            raise InputError(
                f"{path}: classes {classes} differ from the previous model's {known[-1]}. Fix: map models of one task"
            )
        try:
            values_of(classes, mapped)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        known.append(classes)
        reference = load_reference(path)
        if reference is not None and not name.endswith(IN_TRAINING):
            networks[name].head = HeadWithDistance(networks[name].head, reference)
            with_distance.add(name)
    return replace(patch_models(networks, known[-1], mapped, device), with_distance=frozenset(with_distance))


def patch_models(
    networks: Mapping[str, TaskModel],
    classes: Sequence[str] | None,
    mapped: tuple[str, ...],
    device: torch.device,
) -> PatchModels:
    """Copies of networks of one task for inference on `device`; common backbone layers run once.

    Args:
        networks: by name.
        classes: of all networks; None for a score.
        mapped: classes whose probabilities are mapped.

    Raises:
        InputError: the mapped classes do not fit the networks.
    """
    network = SharedBackbone(networks).to(device)
    channels_last(network)
    return PatchModels(tuple(networks), network, values_of(classes, mapped), mapped)
