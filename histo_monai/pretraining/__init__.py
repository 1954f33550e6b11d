"""Pretraining methods by name, loaded lazily.

A method is one file with a class that follows `protocol.Pretext`, settings in `settings.py`, and one line here.
"""

from histo_monai.utils.settings.registry import Registry

PRETEXTS = Registry.of_package(
    "histo_monai.pretraining",
    "PretextSettings",
    random="Random",
    pretrained="Pretrained",
    vae="VAE",
    moco="MoCo",
    rsp="RSP",
    rsp_moco="RSPMoCo",
    dino="DINO",
)
"""Name in `pretraining_methods` of params.yaml -> class that follows `protocol.Pretext`."""
