"""Losses of trainings with labels, and their measures: classification and regression behind one protocol."""

from histo_monai.models.losses.objective import Classification, Objective, Regression

__all__ = ["Classification", "Objective", "Regression"]
