"""How students train in tests."""

from __future__ import annotations

from histo_monai.semisupervised.settings import StrongRanges, StrongSettings, StudentRecipe

_STRONG = StrongSettings(
    num=2,
    magnitudes=(1, 5),
    operations=("rotate", "blur", "hed"),
    within_limits=True,
    affine_scale=(0.0, 0.2),
    hue=(0.0, 0.05),
    blur_mpp=None,
)
RECIPE = StudentRecipe(
    epochs=1,
    steps_per_epoch=4,
    batch_size=4,
    lr=0.01,
    backbone_lr_factor=0.1,
    weight_decay=0.0,
    warmup=0.0,
    ema_decay=0.9,
    unaugmented_fraction=0.0,
    stain_jitter=0.0,
    batchnorm_patches=0,
    match_class_proportions=False,
    interpolation_weights=(0.0,),
    strong=_STRONG,
)
STRONG_VALUES = StrongRanges(within_limits=False, affine_scale=(0.5, 0.6), hue=(0.0, 0.5), blur_mpp=None)
"""Of `transforms.randaugment.STRONG`: magnitudes are values, hue turns by up to one half, the blur counts pixels."""
