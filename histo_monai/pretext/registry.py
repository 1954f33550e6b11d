"""Methods by name. A new one is a folder with its code in it, and one line here: no other code imports a method."""

from histo_monai.settings.registry import Registry

PRETEXTS = Registry(
    random="histo_monai.pretext.random.method:Random",
    pretrained="histo_monai.pretext.pretrained.method:Pretrained",
    vae="histo_monai.pretext.vae.method:VAE",
    moco="histo_monai.pretext.moco.method:MoCo",
    rsp="histo_monai.pretext.rsp.method:RSP",
)
"""Name in `methods` of params.yaml -> class. Its keyword arguments are `start`, `patch_px`, `mpps`, `augmentation_prob`
and the method's section in `pretrain`, flattened."""
