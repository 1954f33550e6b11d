"""Multiple-instance learning from one label per slide."""
