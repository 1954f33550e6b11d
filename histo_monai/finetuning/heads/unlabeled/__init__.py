"""What unlabeled patches add to heads, in feature space."""
