"""Layers above the encoder: of pretraining, of trained task models, and of heads on frozen features."""
