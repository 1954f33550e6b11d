"""From disk to batches: readers of datasets, index, leakage audit, tables, loaders, simulated slides."""
