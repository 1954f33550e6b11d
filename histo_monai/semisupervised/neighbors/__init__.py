"""Neighbors: the method and its settings."""
