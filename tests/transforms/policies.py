"""Operations for tests: those of the pretraining with other ranges, and what one of them drew."""

from histo_monai.transforms.distributions import OddUniform, Uniform
from histo_monai.transforms.operations.blur import Blur
from histo_monai.transforms.operations.brightness_contrast import BrightnessContrast
from histo_monai.transforms.operations.geometric import Affine, Crop, Flip, Rotate, Scale
from histo_monai.transforms.operations.hed import Hed
from histo_monai.transforms.operations.hue_saturation import HueSaturation
from histo_monai.transforms.operations.noise import Noise

# The paper's section "Implementation details".
PAPER = {
    "rotation_deg": 90.0,
    "scale": (0.8, 1.2),
    "affine_shift": 0.0625,
    "affine_scale": 0.5,
    "affine_rotation_deg": 45.0,
    "crop_area": (0.7, 1.0),
    "noise_sigma": 0.1,
    "hue": 0.1,
    "saturation": 1.0,
    "brightness": 0.2,
    "contrast": 0.2,
    "blur_kernel": (3, 7),
    "hed": 0.035,
}

PHOTOMETRIC = (Noise, HueSaturation, BrightnessContrast, Blur, Hed)


def around(center, reach):
    return Uniform(center - reach, center + reach)


def operations(**changed):
    """The ten operations, with the paper's ranges but for those named."""
    own = PAPER | changed
    return (
        Rotate(around(0, own["rotation_deg"])),
        Scale(Uniform(*own["scale"])),
        Affine(
            degrees=around(0, own["affine_rotation_deg"]),
            factor=around(1, own["affine_scale"]),
            shift=around(0, own["affine_shift"]),
        ),
        Flip(),
        Crop(Uniform(*own["crop_area"])),
        Noise(around(0, own["noise_sigma"])),
        HueSaturation(hue=around(0, own["hue"]), saturation=around(0, own["saturation"])),
        BrightnessContrast(around(1, own["brightness"]), around(1, own["contrast"])),
        Blur(OddUniform(*own["blur_kernel"])),
        Hed(factor=around(0, own["hed"]), shift=around(0, own["hed"])),
    )


def number_of(kind, drawn):
    """What the schedule calls an operation."""
    return [type(operation) for operation in drawn.operations].index(kind)


def drawn_by(kind, drawn):
    """The columns that an operation drew."""
    return drawn.parameters[number_of(kind, drawn)]


def geometry_changed(drawn):
    """Where the strong view has another warp than the weak one, shape (N,)."""
    return (drawn.strong.matrices != drawn.weak.matrices).flatten(1).any(dim=1).numpy()
