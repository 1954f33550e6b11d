"""Use of unlabeled patches for heads, in feature space."""
