"""What a process of ours is like: which libraries are quiet, also in products; what a fork needs; how the machine ends it."""
