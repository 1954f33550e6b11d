"""The page of all experiments together: which method saves labels, how many, and how far to trust it."""
