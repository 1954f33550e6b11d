import numpy as np
import pytest
from scipy import stats

from histo_monai.evaluation.metrics import auc, mean_absolute_error, prediction_probability


def probability_by_loops(reference, predicted):
    """Smith, Dutton & Smith 1996: (C + T / 2) / (C + D + T) over pairs that differ in the reference."""
    concordant = discordant = tied = 0
    for i in range(len(reference)):
        for j in range(i):
            if reference[i] == reference[j]:
                continue
            product = (reference[i] - reference[j]) * (predicted[i] - predicted[j])
            concordant += product > 0
            discordant += product < 0
            tied += product == 0
    return (concordant + tied / 2) / (concordant + discordant + tied)


@pytest.mark.parametrize(("num", "levels"), [(3, 2), (40, 3), (300, 50), (530, 10**6)])
def test_prediction_probability_equals_a_loop_over_pairs(num, levels):
    random = np.random.default_rng(num)
    reference = np.r_[0, levels - 1, random.integers(levels, size=num - 2)].astype(float)
    predicted = np.floor(reference + levels * random.normal(size=num))
    expected = probability_by_loops(reference, predicted)
    assert prediction_probability(reference, predicted) == pytest.approx(expected)


def test_the_hotel_table_of_the_scipy_manual_gives_its_somers_d():
    """Cleanliness of rooms (3 levels) and satisfaction of guests (5); d is 0.6032766111513396, P_K (d + 1) / 2."""
    table = np.array([[27, 25, 14, 7, 0], [7, 14, 18, 35, 12], [1, 3, 2, 7, 17]])
    cleanliness, satisfaction = (np.repeat(place.ravel(), table.ravel()) for place in np.indices(table.shape))
    value = prediction_probability(cleanliness, satisfaction)
    assert 2 * value - 1 == pytest.approx(0.6032766111513396, abs=1e-12)
    # Somers' d is not symmetric, nor is P_K: the reference comes first.
    backwards = stats.somersd(satisfaction, cleanliness).statistic
    assert prediction_probability(satisfaction, cleanliness) == pytest.approx((backwards + 1) / 2)
    assert abs(backwards - 0.6032766) > 0.01


def test_for_a_binary_reference_it_is_the_auc():
    random = np.random.default_rng(0)
    labels = random.integers(2, size=200)
    scores = labels + np.round(random.normal(size=200), 1)
    assert prediction_probability(labels, scores) == pytest.approx(auc(labels, scores).value)


def test_perfect_reversed_and_constant_predictions_and_a_constant_reference():
    reference = np.array([0, 0, 0.2, 0.5, 1])
    assert prediction_probability(reference, reference**2) == 1
    assert prediction_probability(reference, -reference) == 0
    assert prediction_probability(reference, np.ones(5)) == 0.5
    assert np.isnan(prediction_probability(np.ones(5), reference))


def test_mean_absolute_error_is_the_mean_distance():
    assert mean_absolute_error([0, 0.5, 1], [0.1, 0.5, 0.5]) == pytest.approx(0.2)


def test_scores_that_do_not_belong_together_are_refused():
    with pytest.raises(ValueError, match="reference 2, predicted 3"):
        mean_absolute_error([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="predicted row 1 is nan"):
        prediction_probability([1, 2], [1, np.nan])
