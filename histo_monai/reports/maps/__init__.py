"""Overlays of maps on slides."""
