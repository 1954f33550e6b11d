"""Losses of trainings with labels and what is told of them: classification and regression behind one protocol."""

from histo_monai.losses.objective import Classification, Objective, Regression

__all__ = ["Classification", "Objective", "Regression"]
