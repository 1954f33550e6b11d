"""Losses and what is told of them: classification and regression behind one protocol."""

from histo_monai.losses.elbo import gaussian_reconstruction, kl_to_standard_normal
from histo_monai.losses.info_nce import info_nce, positive_is_nearest
from histo_monai.losses.objective import Classification, Objective, Regression

__all__ = [
    "Classification",
    "Objective",
    "Regression",
    "gaussian_reconstruction",
    "info_nce",
    "kl_to_standard_normal",
    "positive_is_nearest",
]
