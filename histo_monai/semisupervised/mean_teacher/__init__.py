"""Mean teacher: the method and its settings."""
