"""SoftMatch: the method and its settings."""
