"""Features of patches on disk."""
