"""Self-training of a head on frozen features: confident predictions, propagated to near patches, are pseudo labels."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from histo_monai.finetuning.heads.features import Depths, standardizations
from histo_monai.finetuning.heads.unlabeled.propagation import neighbor_graph, propagate
from histo_monai.finetuning.heads.unlabeled.self_training import (
    HeadData,
    PseudoLabels,
    SelfTrained,
    self_train,
)
from histo_monai.semisupervised.settings import SelfTrainingSettings


class SelfTraining:
    """Head fitted to labels and its own confident predictions, if this lowers the cross-validated loss."""

    Settings: ClassVar[type] = SelfTrainingSettings

    @staticmethod
    def fit_head(data: HeadData, settings: SelfTrainingSettings) -> SelfTrained:
        """Head, and whether unlabeled patches are in it (`protocol.HeadTeacher`)."""
        return self_train(
            data,
            weight=settings.weight,
            threshold=settings.threshold,
            change=partial(_propagation, settings) if settings.propagation else None,
        )


def _propagation(settings: SelfTrainingSettings, unlabeled: Depths) -> PseudoLabels | None:
    """Label propagation between unlabeled patches; None for fewer than two."""
    if len(next(iter(unlabeled.values()))) < 2:
        return None
    (*_, of_all) = standardizations(unlabeled, "concatenated").values()
    rows = of_all.of(unlabeled)
    graph = neighbor_graph(rows, min(settings.num_neighbors, len(rows) - 1))

    def propagated(probabilities: NDArray) -> NDArray:
        spread = propagate(graph, probabilities, settings.propagation)
        return np.asarray(spread / np.maximum(spread.sum(axis=1, keepdims=True), 1e-12))

    return propagated
