"""FixMatch: the method and its settings."""
