"""Losses and measures of trainings with labels."""

from histo_monai.models.losses.objective import Classification, Objective, Regression

__all__ = ["Classification", "Objective", "Regression"]
