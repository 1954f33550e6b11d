"""Batched MONAI transforms that run on the device of the batch."""

import importlib

from histo_monai.utils.process.quiet import quiet_library

with quiet_library():  # MONAI loads nvImageCodec, which prints warnings where there is no GPU.
    importlib.import_module("monai.transforms")
