"""Attention pooling trained on slide labels, cross-fitted: networks trained without a slide score it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine, Events
from numpy.typing import NDArray
from torch.nn import functional as F

from histo_monai.evaluation.comparison.rows import ATTENTION, MOMENTS
from histo_monai.finetuning.learners import choose_model
from histo_monai.models.checkpoint import load_model, save_model
from histo_monai.training.handlers import StopWhenNotFinite
from histo_monai.training.schedule import Schedule
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.progress import progress
from histo_monai.utils.randomness import derive_seed, generator
from histo_monai.wsi.mil.bags import Bags
from histo_monai.wsi.mil.network import AttentionPooling
from histo_monai.wsi.mil.settings import MilSettings

_WARMUP = 0.1


@dataclass(frozen=True)
class Slides:
    """Slides with features, labels and folds.

    Attributes:
        bags: features of every slide, labeled or not.
        labels: (n,), int64, class numbers; -1 for unlabeled and test slides.
        folds: (n,), int64, fold of each labeled slide; -1 for others.
        groups: (n,), patient of each slide, or the slide itself.
        num_classes: K.
    """

    bags: Bags
    labels: NDArray[np.int64]
    folds: NDArray[np.int64]
    groups: NDArray[Any]
    num_classes: int


@dataclass(frozen=True)
class CrossFitted:
    """Cross-fitted predictions: a fold's slides by the network trained without it, others by the mean of all networks.

    A slide without tissue gets the class proportions of the training slides.

    Attributes:
        networks: by number of the held-out fold.
        probabilities: model or baseline -> (n, K).
        weights: attention over the patches of each slide, sum 1: (patches,), float32.
        curves: one row per fold and epoch: fold, epoch, loss.
        moments: selected hyperparameters of the linear model on all labeled slides.
    """

    networks: Mapping[int, AttentionPooling]
    probabilities: Mapping[str, NDArray[np.float64]]
    weights: Sequence[NDArray[np.float32]]
    curves: Sequence[Mapping[str, float]]
    moments: Mapping[str, Any]


@dataclass(frozen=True)
class SavedNetworks:
    """Finished networks on disk, so that an interrupted run resumes after its last fold.

    Attributes:
        folder: of the files.
        fingerprint: of everything that determines the networks; a file with another one is trained again.
    """

    folder: Path
    fingerprint: str

    def load(self, fold: int) -> tuple[dict[str, torch.Tensor], list[float]] | None:
        """Weights and losses of a fold; None if missing or of another fingerprint."""
        try:
            state, about = load_model(self._path(fold))
        except InputError:
            return None
        return (state, list(about["losses"])) if about.get("fingerprint") == self.fingerprint else None

    def save(self, fold: int, network: AttentionPooling, losses: Sequence[float]) -> None:
        """Save a trained network."""
        about = {"fingerprint": self.fingerprint, "losses": list(losses)}
        save_model(self._path(fold), network.state_dict(), about)

    def _path(self, fold: int) -> Path:
        return self.folder / f"{fold}.safetensors"


def cross_fit(
    slides: Slides,
    settings: MilSettings,
    *,
    seed: int,
    device: torch.device,
    saved: SavedNetworks | None = None,
) -> CrossFitted:
    """Cross-fitted predictions of every slide, from one network per held-out fold.

    Args:
        slides: every class is in at least two folds, and no labeled slide is empty.
        saved: finished networks; None saves none.

    Raises:
        ArithmeticError: a loss is not finite; names epoch, iteration and fix.
    """
    networks, curves = {}, []
    for fold in sorted(set(slides.folds.tolist()) - {-1}):
        done = saved.load(fold) if saved else None
        if done is None:
            learning = np.flatnonzero((slides.folds >= 0) & (slides.folds != fold))
            network, losses = teach(
                slides.bags,
                learning,
                slides.labels[learning],
                slides.num_classes,
                settings,
                seed=derive_seed(seed, "fold", fold),
                device=device,
            )
            if saved:
                saved.save(fold, network, losses)
        else:
            network, losses = _new(slides.bags, slides.num_classes, settings), done[1]
            network.load_state_dict(done[0])
            network.to(device).eval().requires_grad_(False)
        networks[fold] = network
        curves += [{"fold": fold, "epoch": epoch, "loss": loss} for epoch, loss in enumerate(losses, start=1)]
    known = np.flatnonzero(slides.folds >= 0)
    attended, weights = _attend(slides, networks, device)
    summed, chosen = _by_moments(slides, known)
    bare = np.array(slides.bags.sizes) == 0
    proportions = np.bincount(slides.labels[known], minlength=slides.num_classes) / len(known)
    for probabilities in (attended, summed):
        probabilities[bare] = proportions
    return CrossFitted(networks, {ATTENTION: attended, MOMENTS: summed}, weights, curves, chosen)


def teach(
    bags: Bags,
    which: NDArray[np.intp],
    labels: NDArray[np.int64],
    num_classes: int,
    settings: MilSettings,
    *,
    seed: int,
    device: torch.device,
) -> tuple[AttentionPooling, list[float]]:
    """Network trained on some slides with balanced class weights, in evaluation mode; mean loss per epoch.

    Args:
        labels: (n,), class numbers.
        num_classes: K.
        seed: of initialization, dropout and order.

    Raises:
        ArithmeticError: a loss is not finite.
    """
    torch.manual_seed(derive_seed(seed, "initialization"))
    network = _new(bags, num_classes, settings)
    network.mean, network.scale = bags.moments(which.tolist())
    network.to(device).train()
    schedule = Schedule(settings.epochs, "adamw", settings.lr, settings.weight_decay, warmup=_WARMUP)
    optimizer = schedule.build_optimizer(network.parameters())
    counts = np.bincount(labels, minlength=num_classes)
    weight = torch.tensor(len(labels) / (num_classes * np.maximum(counts, 1)), dtype=torch.float32)
    num_steps = settings.epochs * len(which)

    def step(engine: Engine, place: int) -> dict[str, torch.Tensor]:
        state = engine.state
        rate = schedule.rate(epoch=state.epoch, step=state.iteration, num_steps=num_steps)
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * rate
        rng = generator(seed, "patches", state.iteration)
        bag = _some(bags[int(which[place])], settings.patches_per_step, rng).to(device)
        logits, _ = network(bag)
        label = int(labels[place])
        loss = weight[label] * F.cross_entropy(logits[None], torch.tensor([label], device=device))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return {"loss": loss.detach().view(1)}

    trainer = Engine(step)
    losses: list[float] = []
    of_epoch: list[float] = []
    StopWhenNotFinite().attach(trainer)
    trainer.add_event_handler(
        Events.ITERATION_COMPLETED, lambda: of_epoch.append(trainer.state.output["loss"].item())
    )
    for epoch in range(1, settings.epochs + 1):
        order = generator(seed, "order", epoch).permutation(len(which)).tolist()
        trainer.run(order, max_epochs=epoch, epoch_length=len(which))
        losses.append(float(np.mean(of_epoch)))
        of_epoch.clear()
    return network.eval().requires_grad_(False), losses


def _new(bags: Bags, num_classes: int, settings: MilSettings) -> AttentionPooling:
    return AttentionPooling(bags.num_features, num_classes, hidden=settings.hidden, dropout=settings.dropout)


def _some(bag: torch.Tensor, most: int, rng: np.random.Generator) -> torch.Tensor:
    if len(bag) <= most:
        return bag
    return bag[torch.from_numpy(np.sort(rng.choice(len(bag), most, replace=False)))]


def _attend(
    slides: Slides, networks: Mapping[int, AttentionPooling], device: torch.device
) -> tuple[NDArray[np.float64], list[NDArray[np.float32]]]:
    """Probabilities and attention of all slides."""
    probabilities, weights = [], []
    for number in progress(range(len(slides.bags)), title="slides", unit="slide", leave=False):
        fold = int(slides.folds[number])
        asked = list(networks.values()) if fold < 0 else [networks[fold]]
        bag = slides.bags[number].to(device)
        with torch.inference_mode():
            found = [network(bag) for network in asked]
        if not len(bag):
            probabilities.append(np.full(slides.num_classes, np.nan))
            weights.append(np.empty(0, np.float32))
            continue
        of_slide = torch.stack([logits.double().softmax(dim=0) for logits, _ in found]).mean(dim=0)
        probabilities.append(of_slide.cpu().numpy())
        weights.append(torch.stack([each for _, each in found]).mean(dim=0).cpu().numpy())
    return np.stack(probabilities), weights


def _by_moments(slides: Slides, known: NDArray[np.intp]) -> tuple[NDArray[np.float64], Mapping[str, Any]]:
    """Cross-fitted predictions of the linear model, and its selected hyperparameters on all labeled slides."""
    summaries = slides.bags.summaries()
    found = np.empty((len(slides.bags), slides.num_classes))

    def fitted(rows: NDArray[np.intp]) -> Any:
        return choose_model(
            {name: values[rows] for name, values in summaries.items()},
            slides.labels[rows],
            slides.groups[rows],
            slides.num_classes,
            names=tuple(summaries),
            learners=("linear",),
        )

    for fold in sorted(set(slides.folds[known].tolist())):
        held_out = known[slides.folds[known] == fold]
        model = fitted(known[slides.folds[known] != fold]).model
        found[held_out] = model.predict({name: values[held_out] for name, values in summaries.items()})
    of_all = fitted(known)
    others = np.flatnonzero((slides.folds < 0) & (np.array(slides.bags.sizes) > 0))
    if len(others):
        found[others] = of_all.model.predict({name: values[others] for name, values in summaries.items()})
    return found, of_all.as_dict()
