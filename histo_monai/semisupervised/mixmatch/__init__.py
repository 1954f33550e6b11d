"""MixMatch: the method and its settings."""
