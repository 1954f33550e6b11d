"""Self-supervised methods behind one protocol, each in a folder of its own, loaded when it is asked for."""

from histo_monai.pretext.protocol import Pretext, Task
from histo_monai.pretext.registry import PRETEXTS

__all__ = ["PRETEXTS", "Pretext", "Task"]
