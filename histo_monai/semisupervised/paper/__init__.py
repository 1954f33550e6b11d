"""The paper's consistency training: the method and its settings."""
