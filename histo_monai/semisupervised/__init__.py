"""Semi-supervised methods: from a fine-tuned model, labeled and unlabeled patches to a student (paper, section 3.3).

A new method is one file with a class that follows `protocol.SemiSupervised`, its settings in `settings.py`, and one
line here. Methods are loaded by name; `semisupervised_methods` in params.yaml names the methods in use.
"""

from histo_monai.utils.settings.registry import Registry

METHODS = Registry.of_package(
    "histo_monai.semisupervised",
    "MethodSettings",
    paper="Paper",
    supervised="Supervised",
    adabn="AdaBN",
    fixmatch="FixMatch",
    adamatch="AdaMatch",
    freematch="FreeMatch",
    softmatch="SoftMatch",
    mixmatch="MixMatch",
    mixed_teacher="MixedTeacher",
    spatial_neighbors="SpatialNeighbors",
    mean_teacher="MeanTeacher",
    rankup="RankUp",
)
"""Name in `semisupervised_methods` of params.yaml -> class, see `protocol.SemiSupervised`."""
