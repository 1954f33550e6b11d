"""Semi-supervised methods by name, loaded lazily (paper, section 3.3).

A method trains a student from a fine-tuned model, labeled and unlabeled patches. It is one file with a class that
follows `protocol.SemiSupervised` (networks) or `protocol.HeadTeacher` (heads on frozen features), settings in
`settings.py`, and one line here.
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
    self_training="heads.SelfTraining",
    diagnoses="heads.Diagnoses",
)
"""Name in `semisupervised_methods` of params.yaml -> class that follows `protocol`."""
