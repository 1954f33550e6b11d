"""Self-supervised methods behind one protocol."""

from collections.abc import Callable

from histo_monai.pretext.moco import MoCo
from histo_monai.pretext.pretrained import Pretrained
from histo_monai.pretext.protocol import Pretext, Task
from histo_monai.pretext.random import Random
from histo_monai.pretext.rsp import ORDERS, RSP, RSPNetwork
from histo_monai.pretext.vae import VAE

PRETEXTS: dict[str, Callable[..., Pretext]] = {
    "random": Random,
    "pretrained": Pretrained,
    "vae": VAE,
    "moco": MoCo,
    "rsp": RSP,
}
"""Name in `methods` -> class. Its keyword arguments are `start`, `patch_px`, `mpps`, `augmentation_prob` and the
method's section in `pretrain`, flattened."""

__all__ = [
    "ORDERS",
    "PRETEXTS",
    "RSP",
    "VAE",
    "MoCo",
    "Pretext",
    "Pretrained",
    "RSPNetwork",
    "Random",
    "Task",
]
