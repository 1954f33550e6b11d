"""Number of this process among the processes (ranks) of one run; a process alone is number 0 of 1.

`ignite.distributed` tells the same, but loads all of Ignite, and more, for two numbers.
"""

from __future__ import annotations

import torch.distributed as dist


def this_rank() -> int:
    """Number of this process, from 0; process 0 writes."""
    return dist.get_rank() if _are_several() else 0


def num_ranks() -> int:
    """Number of processes of the run."""
    return dist.get_world_size() if _are_several() else 1


def wait_for_ranks() -> None:
    """Return when all processes of the run have come here."""
    if _are_several():
        dist.barrier()


def _are_several() -> bool:
    return dist.is_available() and dist.is_initialized()
