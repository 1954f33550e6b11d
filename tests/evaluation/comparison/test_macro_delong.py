import numpy as np
import pytest

from histo_monai.evaluation.comparison.macro_delong import (
    influence_spreads,
    macro_auc_influence,
)
from histo_monai.evaluation.comparison.paired import seed_mean, spread_mean
from histo_monai.evaluation.metrics import delong_test, macro_auc


def influence_variance(labels, influence, groups):
    """DeLong's variance, or Obuchowski's for groups of rows."""
    return sum(spread.variance for spread in influence_spreads(labels, influence, groups))


def softmax(logits):
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    return probabilities / probabilities.sum(axis=1, keepdims=True)


def drawn(random, num_classes, num_groups, rows_per_group, skill=1.0):
    """Labels, probabilities and groups; rows of a group resemble each other in both."""
    group = np.repeat(np.arange(num_groups), rows_per_group)
    frequencies = random.dirichlet(np.full(num_classes, 5.0), size=num_groups)
    labels = np.array([random.choice(num_classes, p=frequencies[g]) for g in group])
    logits = (
        random.normal(size=(len(group), num_classes)) + random.normal(size=(num_groups, num_classes))[group]
    )
    logits[np.arange(len(group)), labels] += skill
    return labels, softmax(logits), group


def test_for_two_classes_the_difference_of_influences_has_the_z_of_delong():
    random = np.random.default_rng(0)
    labels = random.integers(2, size=80)
    scores = [np.round(random.random(80) / 2 + labels / 4, 2) for _ in range(2)]
    areas = [
        macro_auc_influence(labels, np.column_stack([1 - predictions, predictions])) for predictions in scores
    ]
    test = delong_test(labels, *scores)
    difference = areas[0].value - areas[1].value
    variance = influence_variance(labels, areas[0].influence - areas[1].influence, np.arange(80))
    assert difference == pytest.approx(test.difference.value, abs=1e-12)
    assert difference / variance**0.5 == pytest.approx(test.z, rel=1e-9)


def placements_by_loops(labels, probabilities):
    """The influence of each row before its class mean is taken off, by comparing all pairs of rows."""
    present = sorted(set(labels))
    sums = np.zeros(len(labels))
    for k in present:
        positive, negative = np.flatnonzero(labels == k), np.flatnonzero(labels != k)
        for i in positive:
            for j in negative:
                own, other = probabilities[i, k], probabilities[j, k]
                won = 1.0 if own > other else 0.5 if own == other else 0.0
                weight = won / len(positive) / len(negative) / len(present)
                sums[i] += weight
                sums[j] += weight
    return sums


def test_influences_and_variance_equal_the_definition_over_all_pairs():
    labels, probabilities, _ = drawn(np.random.default_rng(1), 3, 12, 4)
    probabilities = np.round(probabilities, 1)  # With ties.
    probabilities[:, 0] = 1 - probabilities[:, 1:].sum(axis=1)
    keep = probabilities[:, 0] >= 0
    labels, probabilities = labels[keep], probabilities[keep]
    area = macro_auc_influence(labels, probabilities)
    placed = placements_by_loops(labels, probabilities)
    of_class = [placed[labels == k] for k in range(3)]
    for k in range(3):
        np.testing.assert_allclose(area.influence[labels == k], of_class[k] - of_class[k].mean(), atol=1e-12)
    assert area.value == pytest.approx(macro_auc(labels, probabilities))
    # A sum of independent means: n_c rows of class c, each with n_c times its influence.
    expected = sum(np.var(len(rows) * rows, ddof=1) / len(rows) for rows in of_class)
    assert influence_variance(labels, area.influence, np.arange(len(labels))) == pytest.approx(expected)


def obuchowski_by_loops(labels, scores, groups):
    """Obuchowski 1997, in her letters: S10, S01, S11 over I10, I01 and I clusters."""
    x, y = scores[labels == 1], scores[labels == 0]

    def kernel(a, b):
        return np.mean([1.0 if a > other else 0.5 if a == other else 0.0 for other in b])

    theta = np.mean([kernel(a, y) for a in x])
    v10 = {g: [kernel(a, y) for a in scores[(labels == 1) & (groups == g)]] for g in set(groups)}
    v01 = {g: [1 - kernel(b, x) for b in scores[(labels == 0) & (groups == g)]] for g in set(groups)}
    holding10, holding01 = [g for g in v10 if v10[g]], [g for g in v01 if v01[g]]
    m, n = len(x), len(y)
    sum10 = {g: sum(v10[g]) - len(v10[g]) * theta for g in v10}
    sum01 = {g: sum(v01[g]) - len(v01[g]) * theta for g in v01}
    s10 = len(holding10) / ((len(holding10) - 1) * m) * sum(sum10[g] ** 2 for g in holding10)
    s01 = len(holding01) / ((len(holding01) - 1) * n) * sum(sum01[g] ** 2 for g in holding01)
    s11 = len(v10) / (len(v10) - 1) * sum(sum10[g] * sum01[g] for g in v10)
    return s10 / m + s01 / n + 2 * s11 / (m * n)


def test_of_two_classes_in_clusters_the_variance_is_that_of_obuchowski():
    labels, probabilities, groups = drawn(np.random.default_rng(2), 2, 9, 6)
    labels[groups == 3] = 1  # A cluster of one class only.
    area = macro_auc_influence(labels, probabilities)
    expected = obuchowski_by_loops(labels, probabilities[:, 1], groups)
    assert influence_variance(labels, area.influence, groups) == pytest.approx(expected)


def test_the_clustered_variance_is_that_of_many_samples_and_the_unclustered_one_is_not():
    random = np.random.default_rng(3)
    values, clustered, plain = [], [], []
    for _ in range(300):
        labels, probabilities, groups = drawn(random, 3, 25, 6)
        area = macro_auc_influence(labels, probabilities)
        values.append(area.value)
        clustered.append(influence_variance(labels, area.influence, groups))
        plain.append(influence_variance(labels, area.influence, np.arange(len(labels))))
    true = np.var(values, ddof=1)
    assert np.mean(clustered) == pytest.approx(true, rel=0.2)
    assert np.mean(plain) < 0.8 * true


def test_few_slides_with_tumor_of_unequal_sizes_do_not_make_differences():
    """Tumor in 6 of 16 slides, most of it in one or two: fifteen degrees of freedom would be too many."""
    by_parts = by_groups = 0
    for run in range(400):
        random = np.random.default_rng(run)
        sizes = np.maximum(random.multinomial(120, random.dirichlet(np.ones(6))), 1)
        slides = np.r_[np.repeat(np.arange(6), sizes), np.repeat(np.arange(16), 7)]
        labels = np.repeat([1, 0], [sizes.sum(), 16 * 7])
        areas = []
        for _ in range(2):
            tumor = (1 + 0.8 * random.normal(size=16))[slides] * labels
            logits = random.normal(size=len(labels)) + 0.5 * random.normal(size=16)[slides] + tumor
            areas.append(macro_auc_influence(labels, softmax(np.column_stack([-logits, logits]) / 2)))
        value = areas[0].value - areas[1].value
        parts = influence_spreads(labels, areas[0].influence - areas[1].influence, slides)
        by_parts += spread_mean([value], parts).p < 0.05
        by_groups += seed_mean([value], sum(part.variance for part in parts), 16).p < 0.05
    assert by_parts <= 30  # 20 expected, if the level were exact.
    assert by_groups > 40


def test_equal_influences_have_no_variance_and_a_class_of_one_group_an_unknown_one():
    labels, probabilities, groups = drawn(np.random.default_rng(4), 3, 6, 5)
    area = macro_auc_influence(labels, probabilities)
    assert influence_variance(labels, area.influence - area.influence, groups) == 0.0
    labels[:] = np.where(groups == 0, 0, 1)
    alone = macro_auc_influence(labels, probabilities)
    assert np.isnan(influence_variance(labels, alone.influence, groups))


def test_one_class_has_no_area():
    area = macro_auc_influence([1, 1], [[0.5, 0.5], [0.1, 0.9]])
    assert np.isnan(area.value)
    assert not area.influence.any()
