"""Resolution sequence prediction and momentum contrast in one network: the method, its network and its settings."""
