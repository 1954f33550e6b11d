"""The datasets by name: `dataset` and `corpus` in params are names of this registry. A new one is a line here."""

from histo_monai.settings.registry import Registry

DATASETS = Registry(
    breastpathq="histo_monai.datasets.breastpathq.dataset:BREASTPATHQ",
    camelyon16="histo_monai.datasets.camelyon16.dataset:CAMELYON16",
    kather="histo_monai.datasets.kather.dataset:KATHER",
    own="histo_monai.datasets.own.dataset:OWN",
)
"""Name -> object, see `protocol.Dataset`."""
