"""Weights between a student and the model that it came from: which of them are kept.

Weights on the line between a model and one that was trained from it predict as an average of both does, or better
(Wortsman et al. 2022). A student gains where the model that it came from is poor, and may lose where that one is good;
which it is, validation patches say. The model itself is one of the points, so a student is never kept that does worse
on them than it.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Sequence

import torch
from torch import nn

_LOG = logging.getLogger(__name__)

Measures = dict[str, float]
"""Means over validation patches, by name."""


def keep_best(
    student: nn.Module,
    start: nn.Module,
    shares: Sequence[float],
    *,
    finish: Callable[[], None],
    measure: Callable[[], Measures],
) -> tuple[float, Measures]:
    """Leave in a student the weights on the line that lose least; of equal ones the first.

    Args:
        student: as it was trained; changed.
        start: the model that it came from, as it was; of the same architecture.
        shares: of the start's weights, 0..1, each a point to try, at least one. At 1 it is the start, nothing changed.
        finish: called at every other point: the student's statistics and shares of classes anew.
        measure: called at every point: means over validation patches, "loss" among them.

    Returns:
        The share that was taken, and what was measured there.
    """
    last = copy.deepcopy(student.state_dict())
    measured: dict[float, Measures] = {}
    losses: dict[float, float] = {}
    best: dict[str, torch.Tensor] = {}
    for share in shares:
        student.load_state_dict(start.state_dict() if share == 1 else last)
        if share < 1:
            draw_back(student, start, share)
            finish()
        measured[share] = measure()
        loss = measured[share]["loss"]
        losses[share] = loss if math.isfinite(loss) else math.inf
        if min(losses, key=losses.__getitem__) == share:
            best = copy.deepcopy(student.state_dict())
    student.load_state_dict(best)
    kept = min(losses, key=losses.__getitem__)
    if len(shares) > 1:
        by_share = ", ".join(f"{loss:.4f} with {share:g}" for share, loss in losses.items())
        _LOG.info("validation loss by the share of weights that is the start's: %s", by_share)
    return kept, measured[kept]


@torch.no_grad()
def draw_back(model: nn.Module, start: nn.Module, share: float) -> None:
    """Weights on the line from a model's own to another's; the statistics of its batch-norms stay its own.

    Args:
        model: changed.
        start: of the same architecture.
        share: of its weights, 0..1.
    """
    for own, theirs in zip(model.parameters(), start.parameters(), strict=True):
        own.lerp_(theirs.to(own), share)
