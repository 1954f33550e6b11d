"""Active learning: which regions of unlabeled slides to label next."""
