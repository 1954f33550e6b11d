"""Semi-supervised methods: from a fine-tuned model, labeled and unlabeled patches to a student (paper, section 3.3).

A method is a folder with a class that follows `protocol.SemiSupervised`, and one line here: no other code imports one.
`students` in params names those in use.
"""

from histo_monai.settings.registry import Part, Registry

_HERE = "histo_monai.semisupervised"

METHODS = Registry(paper=Part(f"{_HERE}.paper.method:Paper", f"{_HERE}.paper.settings:PaperSettings"))
"""Name in `students` of params.yaml -> class, see `protocol.SemiSupervised`."""
