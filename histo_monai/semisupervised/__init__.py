"""Semi-supervised methods: from a fine-tuned model, labeled and unlabeled patches to a student (paper, section 3.3).

A method is one file that follows `protocol.SemiSupervised`, and one line here; `students` in params names
those in use.
"""

from histo_monai.settings.registry import Registry

METHODS = Registry(paper="histo_monai.semisupervised.paper:Paper")
"""Name -> class, see `protocol.SemiSupervised`."""
