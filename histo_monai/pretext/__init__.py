"""Self-supervised methods behind one protocol."""

from collections.abc import Callable

from histo_monai.pretext.protocol import Pretext, Task
from histo_monai.pretext.random import Random
from histo_monai.pretext.rsp import ORDERS, RSP, RSPNetwork

PRETEXTS: dict[str, Callable[..., Pretext]] = {"random": Random, "rsp": RSP}
"""Name in `methods` -> class. Its keyword arguments are the method's section in `pretrain`, flattened."""

__all__ = ["ORDERS", "PRETEXTS", "RSP", "Pretext", "RSPNetwork", "Random", "Task"]
