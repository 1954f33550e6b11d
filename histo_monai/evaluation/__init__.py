"""Metrics with intervals, comparison of models, and selection of one."""
