"""Semi-supervised methods: from a fine-tuned model, labeled and unlabeled patches to a student (paper, section 3.3).

A method is a folder with a class that follows `protocol.SemiSupervised`, and one line here: no other code imports one.
`students` in params names those in use.
"""

from histo_monai.settings.registry import Part, Registry


def _part(folder: str, name: str) -> Part:
    here = f"histo_monai.semisupervised.{folder}"
    return Part(f"{here}.method:{name}", f"{here}.settings:{name}Settings")


METHODS = Registry(
    paper=_part("paper", "Paper"),
    supervised=_part("supervised", "Supervised"),
    adabn=_part("adabn", "AdaBN"),
    fixmatch=_part("fixmatch", "FixMatch"),
    adamatch=_part("adamatch", "AdaMatch"),
    freematch=_part("freematch", "FreeMatch"),
    softmatch=_part("softmatch", "SoftMatch"),
    mixmatch=_part("mixmatch", "MixMatch"),
    mixed_teacher=_part("mixed_teacher", "MixedTeacher"),
    neighbors=_part("neighbors", "Neighbors"),
    mean_teacher=_part("mean_teacher", "MeanTeacher"),
    rankup=_part("rankup", "RankUp"),
)
"""Name in `students` of params.yaml -> class, see `protocol.SemiSupervised`."""
