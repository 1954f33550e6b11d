"""Self-training of a head on frozen features: its confident predictions are pseudo labels."""

from __future__ import annotations

from typing import ClassVar

from histo_monai.finetuning.heads.features import Depths
from histo_monai.finetuning.heads.selection import Labels
from histo_monai.finetuning.heads.settings import SelectionSettings
from histo_monai.finetuning.heads.unlabeled.self_training import SelfTrained, self_train
from histo_monai.semisupervised.settings import SelfTrainingSettings


class SelfTraining:
    """Head fitted to labels and to its own confident predictions, where cross-validation finds a lower loss."""

    Settings: ClassVar[type] = SelfTrainingSettings

    @staticmethod
    def fit_head(
        features: Depths,
        labels: Labels,
        unlabeled: Depths,
        selection: SelectionSettings,
        settings: SelfTrainingSettings,
        seed: int,
    ) -> SelfTrained:
        """See `protocol.HeadTeacher`."""
        weight, threshold = settings.weight, settings.threshold
        return self_train(features, labels, unlabeled, selection, seed, weight=weight, threshold=threshold)
