"""Stages, commands, params and paths. Only this package reads params.yaml and knows the project's paths."""
