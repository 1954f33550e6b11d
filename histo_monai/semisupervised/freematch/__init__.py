"""FreeMatch: the method and its settings."""
