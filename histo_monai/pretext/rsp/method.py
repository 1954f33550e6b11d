"""Resolution sequence prediction: in which of 3! orders do three concentric patches stand? (paper, section 3.1)."""

from __future__ import annotations

from typing import ClassVar

from histo_monai.pretext.order_training import OrderTraining
from histo_monai.pretext.rsp.settings import RSPSettings
from histo_monai.pretext.settings import PretextSettings


class RSP(OrderTraining):
    """See `OrderTraining`."""

    Settings: ClassVar[type[PretextSettings]] = RSPSettings
