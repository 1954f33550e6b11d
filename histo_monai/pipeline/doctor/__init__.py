"""Checks of `doctor` (machine and project) and `verify` (results)."""
