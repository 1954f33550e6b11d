"""Several models on the same rows: seeds, paired tests, many tests at once; and how many labels a score costs."""
