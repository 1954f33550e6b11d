"""The control arm: what all students share, and nothing learned from what has no label."""
