"""Networks: the shared trunk, the heads above it, and how they lie on disk."""

from .batchnorm import ProcessBatchNorm2d, synchronise_batchnorm
from .checkpoint import load_into, load_model, save_model
from .encoder import NUM_FEATURES, Encoder
from .heads import PAIR_FEATURES, OrderHead, PairMLP

__all__ = [
    "NUM_FEATURES",
    "PAIR_FEATURES",
    "Encoder",
    "OrderHead",
    "PairMLP",
    "ProcessBatchNorm2d",
    "load_into",
    "load_model",
    "save_model",
    "synchronise_batchnorm",
]
