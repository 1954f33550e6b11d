"""Semi-supervised methods: from a fine-tuned model, labeled and unlabeled patches to a student (paper, section 3.3).

A method is one file that follows `protocol.SemiSupervised`, and one line here; `students` in params names
those in use.
"""

from histo_monai.settings.registry import Registry

METHODS = Registry(
    paper="histo_monai.semisupervised.paper:Paper",
    supervised="histo_monai.semisupervised.supervised:Supervised",
    fixmatch="histo_monai.semisupervised.fixmatch:FixMatch",
    adamatch="histo_monai.semisupervised.adamatch:AdaMatch",
    freematch="histo_monai.semisupervised.freematch:FreeMatch",
    softmatch="histo_monai.semisupervised.softmatch:SoftMatch",
    mixmatch="histo_monai.semisupervised.mixmatch:MixMatch",
    mean_teacher="histo_monai.semisupervised.mean_teacher:MeanTeacher",
    rankup="histo_monai.semisupervised.rankup:RankUp",
)
"""Name -> class, see `protocol.SemiSupervised`."""
