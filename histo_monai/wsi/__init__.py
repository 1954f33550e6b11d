"""Whole slides: heat-maps, diagnoses, multiple-instance learning, suggestions, export."""
