"""How students train in tests."""

from __future__ import annotations

from histo_monai.semisupervised.students.settings import StrongSettings, StudentRecipe

_STRONG = StrongSettings(2, (1, 5), ("rotate", "blur", "hed"), True, (0.0, 0.2), (0.0, 0.05))
RECIPE = StudentRecipe(
    epochs=1,
    steps_per_epoch=4,
    batch_size=4,
    lr=0.01,
    trunk_rate=0.1,
    weight_decay=0.0,
    warmup=0.0,
    decay=0.9,
    plain_share=0.0,
    stain=0.0,
    batchnorm_patches=0,
    keep_shares=False,
    start_shares=(0.0,),
    strong=_STRONG,
)
