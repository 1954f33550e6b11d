"""Label propagation to unlabeled patches that are near in feature space."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, diags_array
from scipy.sparse.linalg import cg

from histo_monai.finetuning.class_means import unit
from histo_monai.utils.process.products import product

ROWS_AT_ONCE = 1024


def neighbor_graph(rows: NDArray, num_neighbors: int) -> csr_array:
    """Symmetric graph of the nearest rows by cosine; Shape (N, N), weights max(cosine, 0)³ (Iscen et al. 2019).

    Args:
        rows: standardized features, Shape (N, D).
        num_neighbors: neighbors of each row, below N.
    """
    points = unit(rows).astype(np.float32)
    starts, ends, weights = [], [], []
    for first in range(0, len(points), ROWS_AT_ONCE):
        cosines = product(points[first : first + ROWS_AT_ONCE], points.T)
        inside = np.arange(len(cosines))
        cosines[inside, first + inside] = -np.inf
        nearest = np.argpartition(-cosines, num_neighbors - 1, axis=1)[:, :num_neighbors]
        starts.append(np.repeat(first + inside, num_neighbors))
        ends.append(nearest.ravel())
        weights.append(np.maximum(np.take_along_axis(cosines, nearest, axis=1), 0.0).ravel() ** 3)
    return _symmetric(np.concatenate(starts), np.concatenate(ends), np.concatenate(weights), len(rows))


def propagate(graph: csr_array, known: NDArray, alpha: float) -> NDArray[np.float64]:
    """Solve (I - alpha S) F = Y, S = D^-1/2 W D^-1/2 (Zhou et al. 2004), by conjugate gradients.

    Args:
        graph: symmetric W, weights 0 or more. Shape (N, N).
        known: Y: one-hot classes of labeled rows, probabilities of others, or zeros. Shape (N, K).
        alpha: weight of the neighbors, 0 <= alpha < 1.

    Returns:
        F, Shape (N, K), 0 or more; a row without a path to a known row is 0.

    Raises:
        ValueError: alpha is outside [0, 1).
    """
    if not 0 <= alpha < 1:
        raise ValueError(f"alpha: expected 0 <= alpha < 1, not {alpha}")
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    scale = diags_array(np.where(degrees > 0, 1 / np.sqrt(np.where(degrees > 0, degrees, 1.0)), 0.0))
    system = diags_array(np.ones(len(degrees))) - alpha * (scale @ graph @ scale)
    solved = np.zeros(known.shape)
    for column in range(known.shape[1]):
        solved[:, column], unfinished = cg(system, known[:, column], rtol=1e-8, maxiter=10 * len(degrees))
        if unfinished:
            raise ValueError(
                f"label propagation: no solution after {unfinished} steps of conjugate gradients"
            )
    return np.maximum(solved, 0.0)


def _symmetric(starts: NDArray, ends: NDArray, weights: NDArray, size: int) -> csr_array:
    graph = coo_array((weights.astype(np.float64), (starts, ends)), shape=(size, size)).tocsr()
    return csr_array((graph + graph.T) / 2)
