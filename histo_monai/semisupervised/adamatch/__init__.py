"""AdaMatch: the method and its settings."""
