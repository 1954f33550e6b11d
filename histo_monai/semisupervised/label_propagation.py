"""Label propagation: probabilities spread between patches that are near in feature space."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from histo_monai.finetuning.heads.features import Depths, standardizations
from histo_monai.finetuning.heads.selection import Labels
from histo_monai.finetuning.heads.settings import SelectionSettings
from histo_monai.finetuning.heads.unlabeled.propagation import neighbor_graph, propagate
from histo_monai.finetuning.heads.unlabeled.self_training import SelfTrained, self_train
from histo_monai.semisupervised.settings import LabelPropagationSettings
from histo_monai.utils.errors import InputError


class LabelPropagation:
    """Head fitted to labels and to propagated predictions, where cross-validation finds a lower loss."""

    Settings: ClassVar[type] = LabelPropagationSettings

    @staticmethod
    def fit_head(
        features: Depths,
        labels: Labels,
        unlabeled: Depths,
        selection: SelectionSettings,
        settings: LabelPropagationSettings,
        seed: int,
    ) -> SelfTrained:
        """See `protocol.HeadTeacher`."""
        if len(next(iter(unlabeled.values()))) < 2:
            raise InputError("label_propagation: fewer than two patches are unlabeled. Fix: lower alpha.")
        (*_, of_all) = standardizations(unlabeled, "concatenated").values()
        rows = of_all.of(unlabeled)
        graph = neighbor_graph(rows, min(settings.num_neighbors, len(rows) - 1))

        def propagated(probabilities: NDArray) -> NDArray:
            spread = propagate(graph, probabilities, settings.alpha)
            return np.asarray(spread / np.maximum(spread.sum(axis=1, keepdims=True), 1e-12))

        weight, threshold = settings.weight, settings.threshold
        return self_train(
            features,
            labels,
            unlabeled,
            selection,
            seed,
            weight=weight,
            threshold=threshold,
            change=propagated,
        )
