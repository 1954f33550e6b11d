"""Comparison of models on common rows: seeds, paired tests, multiple tests, and labels needed for a score."""
