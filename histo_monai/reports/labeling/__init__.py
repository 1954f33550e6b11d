"""A page on which a pathologist labels suggested squares."""
