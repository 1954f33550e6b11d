"""Encoders by name: the table of published ones, architectures of torchvision and timm, layouts of weights."""
