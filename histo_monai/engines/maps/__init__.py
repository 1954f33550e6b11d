"""What is mapped by what: models of one task, and slides."""
