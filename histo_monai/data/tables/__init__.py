"""Tables that stages hand on: their columns, how they are written, and how they are read, strictly."""
