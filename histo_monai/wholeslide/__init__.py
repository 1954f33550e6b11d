"""Probability maps of whole slides, and what follows from them; no networks here (`engines.heatmap` makes the maps)."""
