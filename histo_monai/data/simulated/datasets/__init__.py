"""Simulated datasets, each in the layout of a public one."""
