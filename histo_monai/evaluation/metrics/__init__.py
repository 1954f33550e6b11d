"""Metrics with intervals: agreement, ROC, classification, calibration."""

from histo_monai.evaluation.metrics.bootstrap import (
    Replicates,
    Resampling,
    grouped_bootstrap,
    paired_difference,
    weighted_mean,
)
from histo_monai.evaluation.metrics.classification import (
    ReliabilityBin,
    accuracy,
    balanced_accuracy,
    brier_score,
    expected_calibration_error,
    macro_auc,
    mean_one_versus_rest_accuracy,
    reliability,
    weighted_f1,
)
from histo_monai.evaluation.metrics.delong import DeLongTest, auc, delong_test
from histo_monai.evaluation.metrics.estimate import Estimate
from histo_monai.evaluation.metrics.froc import (
    FALSE_POSITIVES_PER_SLIDE,
    Froc,
    SlideDetections,
    froc,
    froc_replicates,
)
from histo_monai.evaluation.metrics.icc import intraclass_correlation
from histo_monai.evaluation.metrics.regression import mean_absolute_error, prediction_probability
from histo_monai.evaluation.metrics.summary import (
    classification_estimates,
    human_estimates,
    regression_estimates,
    score_estimates,
)

__all__ = [
    "FALSE_POSITIVES_PER_SLIDE",
    "DeLongTest",
    "Estimate",
    "Froc",
    "ReliabilityBin",
    "Replicates",
    "Resampling",
    "SlideDetections",
    "accuracy",
    "auc",
    "balanced_accuracy",
    "brier_score",
    "classification_estimates",
    "delong_test",
    "expected_calibration_error",
    "froc",
    "froc_replicates",
    "grouped_bootstrap",
    "human_estimates",
    "intraclass_correlation",
    "macro_auc",
    "mean_absolute_error",
    "mean_one_versus_rest_accuracy",
    "paired_difference",
    "prediction_probability",
    "regression_estimates",
    "reliability",
    "score_estimates",
    "weighted_f1",
    "weighted_mean",
]
