"""Momentum contrast: query network, slow key network, queue of keys and the InfoNCE loss (He et al. 2020)."""

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
"""Id of a slot of the queue that holds no key yet."""


class KeyQueue(nn.Module):
    """The last keys, as a ring: the oldest goes first. All of it lies in buffers, and so in `state_dict`.

    Args:
        size: K, keys that it holds.

    Raises:
        ValueError: it would hold none.
    """

    keys: torch.Tensor
    """Shape (K, 128), float32."""
    ids: torch.Tensor
    """Shape (K,), int64: the sample of each key, `EMPTY` where there is none."""
    num_added: torch.Tensor
    """Shape (), int64: keys added so far; modulo K it is the slot that the next one takes."""

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
        """Put keys in, in their order, each in place of the oldest.

        Args:
            keys: Shape (n, 128), any n.
            ids: Shape (n,), int64, the samples that they are of, not negative.
        """
        kept = min(len(keys), self.size)
        self.num_added += len(keys)
        # Slots are computed where the queue lies: a GPU is not waited for.
        slots = (self.num_added - kept + torch.arange(kept, device=self.ids.device)) % self.size
        self.keys.index_copy_(0, slots, keys[len(keys) - kept :].to(self.keys.dtype))
        self.ids.index_copy_(0, slots, ids[len(ids) - kept :])

    @torch.no_grad()
    def add_all(self, keys: torch.Tensor, ids: torch.Tensor) -> None:
        """Add the keys of all processes, in the order of the processes: what one process would add.

        Args:
            keys: Shape (n, 128), this process's share of the batch; the shares are equal.
            ids: Shape (n,), int64, the samples that they are of.
        """
        self.add(_gathered(keys), _gathered(ids))

    def negatives_of(self, ids: torch.Tensor) -> torch.Tensor:
        """Which keys are of another sample: not the empty slots, not an older key of the sample itself.

        Args:
            ids: Shape (n,), int64.

        Returns:
            Shape (n, K), bool.
        """
        return (self.ids != EMPTY) & (self.ids != ids.unsqueeze(1))


class Projector(nn.Module):
    """Patches -> points on the unit sphere: encoder, Linear D -> 128, length 1.

    Input  (N, 3, H, W), float32, 0..1
    Output (N, 128), float32 whatever autocast does (float64 in a network of float64)

    Args:
        encoder: becomes part of it.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.projection = nn.Linear(encoder.num_features, KEY_FEATURES)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """Points of a batch of patches."""
        return point_on_sphere(self.projection, self.encoder(patches))


class MomentumContrast(nn.Module):
    """The query network, which learns; the key network, which follows it; the queue.

    The key network is always in evaluation mode and normalizes by statistics that follow those of the query network,
    as its weights do (Cai et al. 2021, "EMAN"). So a key is a function of its own image alone, on any number of
    processes: nothing of the batch that a query and its key share can tell the positive from the queue. (The shuffling
    of He et al. 2020 needs several processes.)

    Args:
        encoder: that the query network starts from; becomes part of it.
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
        """Training mode does not reach the key network."""
        super().train(mode)
        self.key.eval()
        return self

    def forward(
        self, query_views: torch.Tensor, key_views: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries, and keys without gradient.

        Args:
            query_views: Shape (n, 3, P, P), float32, 0..1.
            key_views: the same; another view of each patch.

        Returns:
            Shape (n, 128) each, of length 1.
        """
        with torch.no_grad():
            keys = self.key(key_views)
        return self.query(query_views), keys

    def follow(self) -> None:
        """One step of the key network towards the query network."""
        follow(self.key, self.query, self.key_momentum)

    @torch.no_grad()
    def enqueue(self, keys: torch.Tensor, ids: torch.Tensor) -> None:
        """See `KeyQueue.add_all`."""
        self.queue.add_all(keys, ids)


def point_on_sphere(projection: nn.Linear, features: torch.Tensor) -> torch.Tensor:
    """(N, D) -> (N, 128), of length 1; float32 whatever autocast does."""
    return F.normalize(at_full_precision(projection, features), dim=1)


@torch.no_grad()
def other_keys_of_batch(keys: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """All keys of a batch, whichever process made them, and which of them are of other samples than one's own.

    Args:
        keys: Shape (n, 128), this process's share of the batch; the shares may differ in length.
        ids: Shape (n,), int64, the samples that they are of.

    Returns:
        Shape (m, 128), and Shape (n, m), bool.
    """
    if dist.is_initialized():
        longest = torch.tensor(len(ids), device=ids.device)
        dist.all_reduce(longest, dist.ReduceOp.MAX)
        missing = int(longest) - len(ids)
        keys = _gathered(F.pad(keys, (0, 0, 0, missing)))
        everyones = _gathered(F.pad(ids, (0, missing), value=EMPTY))
    else:
        everyones = ids
    return keys, (everyones != EMPTY) & (everyones != ids.unsqueeze(1))


def _gathered(share: torch.Tensor) -> torch.Tensor:
    """The shares of all processes, in their order."""
    if not dist.is_initialized():
        return share
    shares = [torch.empty_like(share) for _ in range(dist.get_world_size())]
    dist.all_gather(shares, share.contiguous())
    return torch.cat(shares)


def info_nce(
    queries: torch.Tensor,
    keys: torch.Tensor,
    queue: torch.Tensor,
    *,
    temperature: float,
    valid: torch.Tensor,
) -> torch.Tensor:
    """InfoNCE: -log of the softmax of each query's own key among that key and the valid ones of the queue.

    Source: van den Oord, Li, Vinyals 2018, equation 4; He et al. 2020, equation 1.

    Computed in float32, or in float64 where the queries are. Without any valid key in the queue it is 0; where all keys
    are equal it is log(1 + number of valid keys).

    Args:
        queries: Shape (n, D), of length 1.
        keys: Shape (n, D), of length 1; row i is the positive of query i.
        queue: Shape (K, D), of length 1: the negatives.
        temperature: positive; divides the cosine similarities.
        valid: Shape (n, K), bool; the queue's keys that are negatives of each query.

    Returns:
        Shape (n,).
    """
    logits = _similarities(queries, keys, queue, valid) / temperature
    first = torch.zeros(len(logits), dtype=torch.int64, device=logits.device)
    return F.cross_entropy(logits, first, reduction="none")


def positive_is_nearest(
    queries: torch.Tensor, keys: torch.Tensor, queue: torch.Tensor, *, valid: torch.Tensor
) -> torch.Tensor:
    """1 where a query is nearer to its own key than to every valid one of the queue, else 0.

    A tie is 0, so that a network that gives all patches the same key is never right.

    Args:
        queries: as in `info_nce`.
        keys: the same.
        queue: the same.
        valid: the same.

    Returns:
        Shape (n,), float32.
    """
    similarities = _similarities(queries, keys, queue, valid)
    return (similarities[:, :1] > similarities[:, 1:]).all(dim=1).float()


def _similarities(
    queries: torch.Tensor, keys: torch.Tensor, queue: torch.Tensor, valid: torch.Tensor
) -> torch.Tensor:
    """Shape (n, 1 + K): the positive first; -inf where a key is not valid."""
    dtype = torch.promote_types(queries.dtype, torch.float32)
    queries = queries.to(dtype)
    positive = (queries * keys.to(dtype)).sum(dim=1, keepdim=True)
    negatives = (queries @ queue.to(dtype).T).masked_fill(~valid, float("-inf"))
    return torch.cat([positive, negatives], dim=1)
