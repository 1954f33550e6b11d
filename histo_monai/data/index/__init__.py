"""The index: data on disk -> tables of slides, of centers and of labeled patches; what leaks stops it."""
