"""Slides decoded on the device: encoded tiles go to the GPU, patches are cut there."""
