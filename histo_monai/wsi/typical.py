"""First regions to label, without a model: one typical patch from each cluster of the features.

TypiClust (Hacohen, Dekel & Weinshall 2022, "Active learning on a budget: opposite strategies suit high and low
budgets"): k-means with a cluster for each label, given or asked for; from the largest clusters without a label the
patch whose neighbors are nearest. Features are centered, scaled, reduced to 64 principal components, and scaled to unit
length.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import AgglomerativeClustering, KMeans, MiniBatchKMeans
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from histo_monai.utils.errors import InputError
from histo_monai.utils.randomness import generator
from histo_monai.wsi.suggestion import Fields

NUM_COMPONENTS = 64
NUM_NEIGHBORS = 20
MOST_CANDIDATES = 50_000
"""Largest number of candidates; of more, a random sample of this size is used."""
MOST_CLUSTERS = 500
_PER_GROUP = 5
_SMALL = 20_000
"""Up to so many points k-means uses all of them in each step."""


def choose_typical(
    features: NDArray[np.floating],
    num: int,
    *,
    seed: int,
    labeled_features: NDArray[np.floating] | None = None,
    fields: Fields | None = None,
    most_per_slide: int | None = None,
) -> NDArray[np.int64]:
    """Candidates to label first.

    Args:
        features: (n, D), of the candidates.
        num: How many to choose; fewer candidates are all chosen.
        seed: Of k-means.
        labeled_features: (m, D), of labeled patches; their clusters come last.
        fields: The candidates' squares; chosen squares do not overlap. None: no check.
        most_per_slide: Maximum per slide while other slides have candidates; needs `fields`.

    Returns:
        (k,), int64, in order of selection.

    Raises:
        InputError: A feature is not finite, `num` is below 1, or shapes differ.
    """
    labeled = np.zeros((0, features.shape[-1])) if labeled_features is None else labeled_features
    _check(features, labeled, num, fields)
    some = _some(len(features), seed)
    points = _points(np.concatenate([features[some], labeled]))
    candidates, of_labels = points[: len(some)], points[len(some) :]
    if len(some) <= num:
        return some
    number_of_clusters = min(num + len(labeled), MOST_CLUSTERS, len(some))
    clusters = _clustering(number_of_clusters, len(some), seed).fit(candidates)
    order = _by_typicality(candidates, clusters.labels_, number_of_clusters)
    num_labeled = (
        np.bincount(clusters.predict(of_labels), minlength=number_of_clusters) if len(labeled) else 0
    )
    chosen = _from_clusters(order, num, num_labeled, fields, some, most_per_slide)
    return some[chosen]


def similar_groups(features: NDArray[np.floating]) -> NDArray[np.int64]:
    """Ward's clusters of about `_PER_GROUP` similar patches, (n, D) -> (n,), numbered from 1 by their first member."""
    num = -(-len(features) // _PER_GROUP)
    if num < 2:
        return np.ones(len(features), np.int64)
    clusters = AgglomerativeClustering(num, linkage="ward").fit(_points(features)).labels_
    _, first, group = np.unique(clusters, return_index=True, return_inverse=True)
    return (np.argsort(np.argsort(first))[group] + 1).astype(np.int64)


def _some(num: int, seed: int) -> NDArray[np.int64]:
    if num <= MOST_CANDIDATES:
        return np.arange(num)
    return np.sort(generator(seed, "candidates").permutation(num)[:MOST_CANDIDATES])


def _points(features: NDArray[np.floating]) -> NDArray[np.float32]:
    """Features as k-means sees them, Shape (n, at most `NUM_COMPONENTS`)."""
    rows = np.asarray(features, np.float64)
    rows = (rows - rows.mean(axis=0)) / np.maximum(rows.std(axis=0), 1e-12)
    components = min(NUM_COMPONENTS, *rows.shape)
    rows = PCA(components, svd_solver="auto", random_state=0).fit_transform(rows)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12), np.float32)


def _clustering(number: int, num_points: int, seed: int) -> KMeans | MiniBatchKMeans:
    kind = KMeans if num_points <= _SMALL else MiniBatchKMeans
    return kind(number, n_init=3, random_state=seed % 2**32)


def _by_typicality(
    points: NDArray[np.float32], clusters: NDArray[np.integer], num_clusters: int
) -> list[NDArray[np.int64]]:
    """Points of each cluster, those with the nearest neighbors in the cluster first."""
    order = []
    for cluster in range(num_clusters):  # Equal points leave some of them empty.
        members = np.flatnonzero(clusters == cluster)
        if len(members) > 1:
            neighbors = NearestNeighbors(n_neighbors=min(NUM_NEIGHBORS, len(members) - 1)).fit(
                points[members]
            )
            distances, _ = neighbors.kneighbors()
            members = members[np.argsort(distances.mean(axis=1), kind="stable")]
        order.append(members)
    return order


def _from_clusters(
    order: list[NDArray[np.int64]],
    num: int,
    num_labeled: NDArray[np.integer] | int,
    fields: Fields | None,
    some: NDArray[np.int64],
    most_per_slide: int | None,
) -> list[int]:
    """The first free point of one cluster after the other: those with the fewest labels first, of these the largest."""
    sizes = np.array([len(members) for members in order])
    taken = np.zeros(len(order), np.int64) + num_labeled
    is_free = np.ones(int(sizes.sum()), bool)
    of_slide: dict[object, int] = {}
    chosen: list[int] = []
    while len(chosen) < num:
        found = None
        for cluster in np.lexsort((-sizes, taken)):
            free = order[cluster][is_free[order[cluster]]]
            if fields is not None and most_per_slide is not None:
                slides = fields.slide_ids[some[free]]
                free = free[[of_slide.get(slide, 0) < most_per_slide for slide in slides]]
            if len(free):
                found = int(free[0])
                taken[cluster] += 1
                break
        if found is None:
            if most_per_slide is None or not is_free.any():
                break
            most_per_slide = None
            continue
        chosen.append(found)
        is_free[found] = False
        if fields is not None:
            is_free &= ~fields.overlapping(fields, int(some[found]))[some]
            slide = fields.slide_ids[some[found]]
            of_slide[slide] = of_slide.get(slide, 0) + 1
    return chosen


def _check(
    features: NDArray[np.floating], labeled: NDArray[np.floating], num: int, fields: Fields | None
) -> None:
    if features.ndim != 2 or labeled.ndim != 2 or labeled.shape[1] != features.shape[1]:
        raise InputError(f"features {features.shape}, labeled {labeled.shape}. Fix: give (n, D) and (m, D)")
    if fields is not None and len(fields.sides_px) != len(features):
        raise InputError(
            f"fields: {len(fields.sides_px)} for {len(features)} candidates. Fix: give one per candidate"
        )
    if num < 1:
        raise InputError(f"num: got {num}. Fix: give at least 1")
    if not (np.isfinite(features).all() and np.isfinite(labeled).all()):
        raise InputError("features: a value is not finite. Fix: give finite numbers")
