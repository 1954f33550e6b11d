"""Is this machine, this project, this result as it should be? What `doctor` and `verify` look at."""
