"""Functions common to several dataset readers."""
