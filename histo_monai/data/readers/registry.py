"""Registry of datasets by name, for `dataset` and `pretraining_dataset` of params. A new dataset adds one line."""

from histo_monai.utils.settings.registry import Registry

DATASETS = Registry(
    breastpathq="histo_monai.data.readers.breastpathq.dataset:BREASTPATHQ",
    camelyon16="histo_monai.data.readers.camelyon16.dataset:CAMELYON16",
    kather="histo_monai.data.readers.kather.dataset:KATHER",
    own="histo_monai.data.readers.own.dataset:OWN",
)
"""Name -> `protocol.Dataset`."""
