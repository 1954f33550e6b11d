"""Momentum contrast: query and key networks, key queue, InfoNCE loss (He et al. 2020)."""

from __future__ import annotations

import copy
from typing import Self

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from histo_monai.models.average import follow
from histo_monai.models.encoder import Encoder
from histo_monai.models.layers import at_full_precision

KEY_FEATURES = 128
"""Length of queries and keys (He et al. 2020, section 3.3)."""

EMPTY = -1
"""Id of an empty slot of the queue."""


class KeyQueue(nn.Module):
    """Ring of the last K keys, in buffers of `state_dict`.

    Args:
        size: K.

    Raises:
        ValueError: K is below 1.
    """

    keys: torch.Tensor
    """Shape (K, 128), float32."""
    ids: torch.Tensor
    """Shape (K,), int64: the sample of each key, or `EMPTY`."""
    num_added: torch.Tensor
    """Shape (), int64: keys added so far; modulo K: the next slot."""

    def __init__(self, size: int) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"a queue of {size} keys: at least 1 expected")
        self.size = size
        self.register_buffer("keys", torch.zeros(size, KEY_FEATURES))
        self.register_buffer("ids", torch.full((size,), EMPTY))
        self.register_buffer("num_added", torch.tensor(0))

    @torch.no_grad()
    def add(self, keys: torch.Tensor, ids: torch.Tensor) -> None:
        """Add keys in order, each in place of the oldest.

        Args:
            keys: Shape (n, 128).
            ids: Shape (n,), int64, sample of each key, not negative.
        """
        num_stored = min(len(keys), self.size)
        self.num_added += len(keys)
        # Slots are computed on the device of the queue, without synchronization.
        slots = (self.num_added - num_stored + torch.arange(num_stored, device=self.ids.device)) % self.size
        self.keys.index_copy_(0, slots, keys[len(keys) - num_stored :].to(self.keys.dtype))
        self.ids.index_copy_(0, slots, ids[len(ids) - num_stored :])

    @torch.no_grad()
    def add_all(self, keys: torch.Tensor, ids: torch.Tensor) -> None:
        """Add the keys of all processes in rank order, as one process would.

        Args:
            keys: Shape (n, 128), the batch rows of this process; n is equal on all processes.
            ids: Shape (n,), int64, sample of each key.
        """
        self.add(_gathered(keys), _gathered(ids))

    def negatives_of(self, ids: torch.Tensor) -> torch.Tensor:
        """Mask of the keys that are negatives of each sample: neither empty slots nor own older keys.

        Args:
            ids: Shape (n,), int64.

        Returns:
            Shape (n, K), bool.
        """
        return (self.ids != EMPTY) & (self.ids != ids.unsqueeze(1))


class Projector(nn.Module):
    """Points on the unit sphere from patches: encoder, Linear D -> 128, length 1.

    Input  (N, 3, H, W), float32, 0..1
    Output (N, 128), float32 under autocast too (float64 in a float64 network)
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.projection = nn.Linear(encoder.num_features, KEY_FEATURES)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """Points of a batch of patches."""
        return point_on_sphere(self.projection, self.encoder(patches))


class MomentumContrast(nn.Module):
    """Query network, key network that follows it, and key queue.

    The key network stays in evaluation mode. Its normalization statistics follow the query network's, as its weights do
    (Cai et al. 2021, "EMAN"). A key depends on its own image alone, on any number of processes: no batch statistics
    reveal the positive. (The shuffling of He et al. 2020 needs several processes.)

    Args:
        queue_size: K.
        key_momentum: m of key <- m key + (1 - m) query, after each step.

    Raises:
        ValueError: the momentum is outside 0..1, or the queue is empty.
    """

    def __init__(self, encoder: Encoder, queue_size: int, key_momentum: float) -> None:
        super().__init__()
        if not 0.0 <= key_momentum <= 1.0:
            raise ValueError(f"key_momentum lies in 0..1, got {key_momentum}")
        self.key_momentum = key_momentum
        self.query = Projector(encoder)
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.queue = KeyQueue(queue_size)
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Set the mode of all but the key network."""
        super().train(mode)
        self.key.eval()
        return self

    def forward(
        self, query_views: torch.Tensor, key_views: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries, and keys without gradient.

        Args:
            query_views: Shape (n, 3, P, P), float32, 0..1.
            key_views: another view of each patch, equal shape.

        Returns:
            (n, 128) each, of length 1.
        """
        with torch.no_grad():
            keys = self.key(key_views)
        return self.query(query_views), keys

    def follow(self) -> None:
        """Move the key network one step towards the query network."""
        follow(self.key, self.query, self.key_momentum)

    @torch.no_grad()
    def enqueue(self, keys: torch.Tensor, ids: torch.Tensor) -> None:
        """Add the keys of all processes to the queue."""
        self.queue.add_all(keys, ids)


def point_on_sphere(projection: nn.Linear, features: torch.Tensor) -> torch.Tensor:
    """(N, D) -> (N, 128), of length 1, float32 under autocast too."""
    return F.normalize(at_full_precision(projection, features), dim=1)


@torch.no_grad()
def other_keys_of_batch(keys: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys of the whole batch over all processes, and a mask of each sample's negatives.

    Args:
        keys: Shape (n, 128), the batch rows of this process; n may differ between processes.
        ids: Shape (n,), int64, sample of each key.

    Returns:
        Keys (m, 128), mask (n, m) bool.
    """
    if dist.is_initialized():
        longest = torch.tensor(len(ids), device=ids.device)
        dist.all_reduce(longest, dist.ReduceOp.MAX)
        missing = int(longest) - len(ids)
        keys = _gathered(F.pad(keys, (0, 0, 0, missing)))
        all_ids = _gathered(F.pad(ids, (0, missing), value=EMPTY))
    else:
        all_ids = ids
    return keys, (all_ids != EMPTY) & (all_ids != ids.unsqueeze(1))


def _gathered(rows: torch.Tensor) -> torch.Tensor:
    """Rows of all processes, in rank order."""
    if not dist.is_initialized():
        return rows
    parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, rows.contiguous())
    return torch.cat(parts)


def info_nce(
    queries: torch.Tensor,
    keys: torch.Tensor,
    queue: torch.Tensor,
    *,
    temperature: float,
    valid: torch.Tensor,
) -> torch.Tensor:
    """InfoNCE: -log softmax of each query's own key against the valid keys of the queue.

    Source: van den Oord, Li, Vinyals 2018, equation 4; He et al. 2020, equation 1.

    Computed in float32, or in float64 for float64 queries. 0 without valid keys; log(1 + number of valid keys) where
    all keys are equal.

    Args:
        queries: Shape (n, D), of length 1.
        keys: Shape (n, D), of length 1; row i is the positive of query i.
        queue: Shape (K, D), of length 1: the negatives.
        temperature: positive; divides the cosine similarities.
        valid: Shape (n, K), bool; the queue's negatives of each query.

    Returns:
        Shape (n,).
    """
    logits = _similarities(queries, keys, queue, valid) / temperature
    first = torch.zeros(len(logits), dtype=torch.int64, device=logits.device)
    return F.cross_entropy(logits, first, reduction="none")


def positive_is_nearest(
    queries: torch.Tensor, keys: torch.Tensor, queue: torch.Tensor, *, valid: torch.Tensor
) -> torch.Tensor:
    """1 where a query is nearer to its own key than to every valid key of the queue, else 0.

    A tie is 0, so a network with equal keys for all patches scores 0. Arguments as in `info_nce`.

    Returns:
        Shape (n,), float32.
    """
    similarities = _similarities(queries, keys, queue, valid)
    return (similarities[:, :1] > similarities[:, 1:]).all(dim=1).float()


def _similarities(
    queries: torch.Tensor, keys: torch.Tensor, queue: torch.Tensor, valid: torch.Tensor
) -> torch.Tensor:
    """Cosines (n, 1 + K): the positive first; -inf for invalid keys."""
    dtype = torch.promote_types(queries.dtype, torch.float32)
    queries = queries.to(dtype)
    positive = (queries * keys.to(dtype)).sum(dim=1, keepdim=True)
    negatives = (queries @ queue.to(dtype).T).masked_fill(~valid, float("-inf"))
    return torch.cat([positive, negatives], dim=1)
