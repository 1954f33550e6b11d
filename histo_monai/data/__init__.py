"""Data from disk to batches: dataset readers, index, leakage audit, tables, loaders, simulated slides."""
