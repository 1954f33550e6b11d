"""Semi-supervised training: the steps, what neighbors say before it, and how much of the start is kept after it."""
