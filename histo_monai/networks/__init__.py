"""Networks: the shared trunk, the heads above it, and how they lie on disk."""

from histo_monai.networks.batchnorm import ProcessBatchNorm2d, synchronise_batchnorm
from histo_monai.networks.checkpoint import load_into, load_model, save_model
from histo_monai.networks.encoder import NUM_FEATURES, Encoder
from histo_monai.networks.heads import PAIR_FEATURES, OrderHead, PairMLP

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
