"""Page of all experiments: labels saved by each method, with limits."""
