"""Simulated cohorts, each in the layout of a public dataset."""
