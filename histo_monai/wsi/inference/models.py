"""Models of patches as maps need them: what of their outputs is mapped, and at which resolution they look."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from histo_monai.models.losses import Classification, Objective, Regression
from histo_monai.models.shared_backbone import SharedBackbone
from histo_monai.models.task_model import TaskModel, from_task_model
from histo_monai.training.device import channels_last
from histo_monai.utils.errors import InputError
from histo_monai.wsi.heatmaps.heatmap import column_of

TUMOR = "tumor"
"""The class that is mapped of two where nobody says which."""


@dataclass(frozen=True)
class MapPlan:
    """How a slide is mapped.

    Attributes:
        patch_px: Side of the patches that the networks see.
        mpp: Their resolution, µm per px.
        stride_um: From one patch to the next, and side of a cell, µm; a whole number of patch pixels.
        tissue_mpp: Resolution of the tissue mask, µm per px.
        min_tissue_fraction: Least part of a cell that is tissue, 0..1.
        batch_size: Patches at a time.
    """

    patch_px: int
    mpp: float
    stride_um: float
    tissue_mpp: float
    min_tissue_fraction: float
    batch_size: int


@dataclass(frozen=True)
class PatchModels:
    """Models of one task, and what their maps show.

    Attributes:
        names: Of the models.
        network: Patches (n, 3, P, P), float32, 0..1 -> name -> outputs (n, K); in evaluation mode.
        values: Outputs (n, K) -> what the map shows, (n, M), 0..1; see `values_of`.
        classes: Whose probabilities these M are; none for a score.
    """

    names: Sequence[str]
    network: Callable[[torch.Tensor], Mapping[str, torch.Tensor]]
    values: Callable[[torch.Tensor], torch.Tensor]
    classes: tuple[str, ...]

    def columns(self, name: str) -> list[str]:
        """Those of a model, in the order of `values`."""
        return [column_of(name, label) for label in self.classes] if len(self.classes) > 1 else [name]


def mapped_classes(classes: Sequence[str] | None, positive: str | None) -> tuple[str, ...]:
    """The classes whose probabilities are mapped; none of a score.

    Args:
        classes: of the model; None where it gives a score.
        positive: the one that is asked for, whatever its case; None for tumor where that is one of two, else all.

    Raises:
        InputError: it is not one of them.
    """
    if not classes:
        if positive is not None:
            raise InputError(f"asked for the class {positive!r}, but it gives a score")
        return ()
    if positive is None:
        tumor = tuple(name for name in classes if name.casefold() == TUMOR)
        return tumor if len(classes) == 2 and tumor else tuple(classes)
    same = [name for name in classes if name.casefold() == positive.casefold()]
    named = [name for name in same if name == positive] or same
    if len(named) != 1:
        raise InputError(f"asked for the class {positive!r}, but it gives the classes {', '.join(classes)}")
    return (named[0],)


def values_of(
    classes: Sequence[str] | None, mapped: tuple[str, ...]
) -> Callable[[torch.Tensor], torch.Tensor]:
    """What a map shows: the probabilities of some classes, or the score of models without classes.

    Raises:
        InputError: one is not of the classes, or a score is asked for where there are classes, or the other way round.
    """
    if not set(mapped) <= set(classes or ()) or bool(classes) != bool(mapped):
        wanted = f"the classes {list(mapped)}" if mapped else "a score"
        raise InputError(
            f"asked for {wanted}, but it gives {f'the classes {classes}' if classes else 'a score'}"
        )
    objective: Objective = Classification(classes) if classes else Regression()
    columns = [list(classes).index(name) for name in mapped] if classes else [0]
    return lambda outputs: objective.predictions(outputs)[:, columns]


def patches_mpp(description: Mapping[str, Any], path: Path) -> float:
    """µm per pixel of the patches that a model of a task sees.

    Raises:
        InputError: its description does not tell, so it is not known at what resolution to map a slide; names it.
    """
    mpp = description.get("mpp")
    if mpp is None:
        raise InputError(
            f"{path}: does not say at what µm/px it sees patches (it learned from images, or from squares of several "
            "mpp); give the patches in patches.csv one mpp, and run finetune again"
        )
    return float(mpp)


def model_plan(
    description: Mapping[str, Any],
    path: Path,
    stride_um: float | None,
    *,
    tissue_mpp: float,
    min_tissue_fraction: float,
    batch_size: int,
) -> MapPlan:
    """How a model of a task maps a slide: with patches of the side and resolution that it was trained with.

    Args:
        description: Of the model.
        path: Of the model, for messages.
        stride_um: See `MapPlan`; None: patches side by side.
        tissue_mpp: See `MapPlan`.
        min_tissue_fraction: See `MapPlan`.
        batch_size: See `MapPlan`.

    Raises:
        InputError: See `patches_mpp`.
    """
    mpp, patch_px = patches_mpp(description, path), description["patch_px"]
    stride_um = patch_px * mpp if stride_um is None else stride_um
    return MapPlan(patch_px, mpp, stride_um, tissue_mpp, min_tissue_fraction, batch_size)


def load_models(
    paths: Mapping[str, Path], mapped: tuple[str, ...], settings: MapPlan, device: torch.device
) -> PatchModels:
    """Fine-tuned models or students of one task, by name, on `device`; what their trunks share runs once.

    Raises:
        InputError: A file is no model of a task, saw patches of another size or resolution, does not give what is asked
            for, or has other classes than the one before; names it.
    """
    networks = {}
    known: list[list[str] | None] = []
    for name, path in paths.items():
        networks[name], description = from_task_model(path)
        classes, its_px, its_mpp = description["classes"], description["patch_px"], description.get("mpp")
        if its_px != settings.patch_px or not math.isclose(its_mpp or settings.mpp, settings.mpp):
            raise InputError(
                f"{path}: saw patches of {its_px} px at {its_mpp} µm/px, not {settings.patch_px} px at "
                f"{settings.mpp} µm/px; map at its own, or run finetune again"
            )
        if known and classes != known[-1]:
            raise InputError(f"{path}: its classes are {classes}, those of the model before {known[-1]}")
        try:
            values_of(classes, mapped)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        known.append(classes)
    return patch_models(networks, known[-1], mapped, device)


def patch_models(
    networks: Mapping[str, TaskModel],
    classes: Sequence[str] | None,
    mapped: tuple[str, ...],
    device: torch.device,
) -> PatchModels:
    """Copies of networks of one task, for inference on `device`; what their trunks share runs once.

    Args:
        networks: By name.
        classes: Of all of them; None for a score.
        mapped: Classes whose probabilities are mapped.
        device: Where they run.

    Raises:
        InputError: See `values_of`.
    """
    network = SharedBackbone(networks).to(device)
    channels_last(network)
    return PatchModels(tuple(networks), network, values_of(classes, mapped), mapped)
