"""RankUp: the method and its settings."""
