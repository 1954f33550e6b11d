"""Networks: the shared trunk, the heads above it, and how they lie on disk."""

from histo_monai.networks.batchnorm import ProcessBatchNorm2d, synchronise_batchnorm
from histo_monai.networks.checkpoint import load_into, load_model, save_model
from histo_monai.networks.decoder import Decoder
from histo_monai.networks.encoder import ENCODERS, Architecture, Encoder, build_encoder, encoder_from
from histo_monai.networks.heads import PAIR_FEATURES, OrderHead, PairMLP
from histo_monai.networks.momentum import (
    EMPTY,
    KEY_FEATURES,
    KeyQueue,
    MomentumContrast,
    Projector,
    other_keys_of_batch,
)
from histo_monai.networks.start import EncoderStart
from histo_monai.networks.task_model import (
    HEADS,
    LinearHead,
    PairHead,
    TaskModel,
    describe_task_model,
    from_encoder,
    from_task_model,
    num_outputs,
)
from histo_monai.networks.teacher_student import TeacherStudent

__all__ = [
    "EMPTY",
    "ENCODERS",
    "HEADS",
    "KEY_FEATURES",
    "PAIR_FEATURES",
    "Architecture",
    "Decoder",
    "Encoder",
    "EncoderStart",
    "KeyQueue",
    "LinearHead",
    "MomentumContrast",
    "OrderHead",
    "PairHead",
    "PairMLP",
    "ProcessBatchNorm2d",
    "Projector",
    "TaskModel",
    "TeacherStudent",
    "build_encoder",
    "describe_task_model",
    "encoder_from",
    "from_encoder",
    "from_task_model",
    "load_into",
    "load_model",
    "num_outputs",
    "other_keys_of_batch",
    "save_model",
    "synchronise_batchnorm",
]
