"""Maps over the slides that they are of."""
