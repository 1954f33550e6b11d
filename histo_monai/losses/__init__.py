"""Losses and what is told of them: classification and regression behind one protocol."""

from histo_monai.losses.elbo import gaussian_reconstruction, kl_to_standard_normal
from histo_monai.losses.objective import Classification, Objective, Regression

__all__ = ["Classification", "Objective", "Regression", "gaussian_reconstruction", "kl_to_standard_normal"]
