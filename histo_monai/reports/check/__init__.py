"""What there is before anything is trained: a page, and a picture of each slide."""
