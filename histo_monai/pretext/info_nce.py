"""InfoNCE: which of many keys belongs to the query? (van den Oord, Li, Vinyals 2018, equation 4; He et al. 2020, 1)."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def info_nce(
    queries: torch.Tensor,
    keys: torch.Tensor,
    queue: torch.Tensor,
    *,
    temperature: float,
    valid: torch.Tensor,
) -> torch.Tensor:
    """-log of the softmax of each query's own key among that key and the valid ones of the queue.

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
