"""Self-supervised methods behind one protocol, each in a folder of its own, loaded when it is asked for.

A method is a folder with a class that follows `protocol.Pretext`, and one line here: no other code imports one.
"""

from histo_monai.settings.registry import Part, Registry

_HERE = "histo_monai.pretext"

PRETEXTS = Registry(
    random=Part(f"{_HERE}.random.method:Random", f"{_HERE}.settings:UntrainedSettings"),
    pretrained=Part(
        f"{_HERE}.pretrained.method:Pretrained", f"{_HERE}.pretrained.settings:PretrainedSettings"
    ),
    vae=Part(f"{_HERE}.vae.method:VAE", f"{_HERE}.vae.settings:VAESettings"),
    moco=Part(f"{_HERE}.moco.method:MoCo", f"{_HERE}.moco.settings:MoCoSettings"),
    rsp=Part(f"{_HERE}.rsp.method:RSP", f"{_HERE}.rsp.settings:RSPSettings"),
    rsp_moco=Part(f"{_HERE}.rsp_moco.method:RSPMoCo", f"{_HERE}.rsp_moco.settings:RSPMoCoSettings"),
)
"""Name in `methods` of params.yaml -> class, see `protocol.Pretext`."""
