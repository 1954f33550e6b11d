"""Losses and what is told of them: classification and regression behind one protocol."""
