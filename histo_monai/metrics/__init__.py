"""Metrics with intervals: agreement, ROC, classification, calibration; numpy and scipy only."""

from histo_monai.metrics.bootstrap import Resampling, grouped_bootstrap, paired_difference, weighted_mean
from histo_monai.metrics.classification import (
    ReliabilityBin,
    accuracy,
    brier_score,
    expected_calibration_error,
    macro_auc,
    mean_one_versus_rest_accuracy,
    reliability,
    weighted_f1,
)
from histo_monai.metrics.comparison import (
    ALIKE,
    BETTER,
    UNTESTED,
    VERDICTS,
    WORSE,
    Comparison,
    ModelValue,
    PairedTest,
    compare_models,
    estimate_over_seeds,
    mean_difference,
)
from histo_monai.metrics.delong import DeLongTest, auc, delong_test
from histo_monai.metrics.estimate import Estimate
from histo_monai.metrics.froc import (
    FALSE_POSITIVES_PER_SLIDE,
    Froc,
    SlideDetections,
    froc,
    froc_replicates,
)
from histo_monai.metrics.icc import intraclass_correlation
from histo_monai.metrics.label_counts import LabelsNeeded, LabelsSaved
from histo_monai.metrics.learning_curve import LearningCurve, isotonic, labels_needed, labels_saved
from histo_monai.metrics.macro_delong import (
    MacroAuc,
    influence_spreads,
    influence_variance,
    macro_auc_influence,
)
from histo_monai.metrics.multiplicity import holm
from histo_monai.metrics.paired import (
    SeedMean,
    Spread,
    effective_groups,
    mcnemar_p,
    replicate_variance,
    seed_mean,
    spread_mean,
)
from histo_monai.metrics.power_law import PowerLaws
from histo_monai.metrics.regression import mean_absolute_error, prediction_probability
from histo_monai.metrics.replicates import AGREEMENT, CLASSIFICATION, Replicates, metric_replicates
from histo_monai.metrics.summary import (
    classification_estimates,
    human_estimates,
    regression_estimates,
    score_estimates,
)

__all__ = [
    "AGREEMENT",
    "ALIKE",
    "BETTER",
    "CLASSIFICATION",
    "FALSE_POSITIVES_PER_SLIDE",
    "UNTESTED",
    "VERDICTS",
    "WORSE",
    "Comparison",
    "DeLongTest",
    "Estimate",
    "Froc",
    "LabelsNeeded",
    "LabelsSaved",
    "LearningCurve",
    "MacroAuc",
    "ModelValue",
    "PairedTest",
    "PowerLaws",
    "ReliabilityBin",
    "Replicates",
    "Resampling",
    "SeedMean",
    "SlideDetections",
    "Spread",
    "accuracy",
    "auc",
    "brier_score",
    "classification_estimates",
    "compare_models",
    "delong_test",
    "effective_groups",
    "estimate_over_seeds",
    "expected_calibration_error",
    "froc",
    "froc_replicates",
    "grouped_bootstrap",
    "holm",
    "human_estimates",
    "influence_spreads",
    "influence_variance",
    "intraclass_correlation",
    "isotonic",
    "labels_needed",
    "labels_saved",
    "macro_auc",
    "macro_auc_influence",
    "mcnemar_p",
    "mean_absolute_error",
    "mean_difference",
    "mean_one_versus_rest_accuracy",
    "metric_replicates",
    "paired_difference",
    "prediction_probability",
    "regression_estimates",
    "reliability",
    "replicate_variance",
    "score_estimates",
    "seed_mean",
    "spread_mean",
    "weighted_f1",
    "weighted_mean",
]
