"""Mixed teacher: the method and its settings."""
