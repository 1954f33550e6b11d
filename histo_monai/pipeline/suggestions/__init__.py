"""Regions to label: which, where, and their files."""
