"""The index: tables of slides, patch centers and labeled patches, checked for leaks."""
