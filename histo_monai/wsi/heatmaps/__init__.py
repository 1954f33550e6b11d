"""Heat-maps of whole slides and their files."""
