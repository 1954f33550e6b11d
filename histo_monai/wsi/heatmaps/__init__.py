"""Heat-maps of whole slides and how they lie on disk."""
