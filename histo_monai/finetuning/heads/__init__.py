"""Heads on frozen features: from cached features and few labels to a calibrated model in seconds.

A new head is one file with a class that follows `protocol.Head`, its settings in `settings.py`, and one line here.
"""

from histo_monai.utils.settings.registry import Registry

HEADS = Registry.of_package(
    "histo_monai.finetuning.heads",
    "HeadSettings",
    class_means="ClassMeans",
    logistic="Logistic",
    neighbors="Neighbors",
    discriminant="Discriminant",
    ridge="Ridge",
    kernel_ridge="KernelRidge",
)
"""Name of a head -> class (`protocol.Head`); `selection.select_head` compares them."""
