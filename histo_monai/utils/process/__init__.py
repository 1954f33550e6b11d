"""What a process of ours is like: which libraries are quiet, what a fork needs, how it ends."""
