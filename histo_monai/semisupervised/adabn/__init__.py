"""AdaBN: the method and its settings."""
