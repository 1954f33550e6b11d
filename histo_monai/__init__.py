"""Few labels, many slides: semi-supervised learning on whole-slide histopathology."""

__version__ = "0.1.0"
