"""Active learning: which fields of unlabeled slides to label next."""
