"""Probability maps of whole slides, and what follows from them: NumPy, no networks (`engines.heatmap` makes the maps)."""
