"""One patient's tissue, painted tile by tile."""
