from itertools import combinations

import numpy as np
import pytest

from histo_monai.evaluation.comparison.multiplicity import holm


def test_four_tests_are_adjusted_as_by_hand():
    # Sorted 0.005, 0.01, 0.03, 0.04, times 4, 3, 2, 1: the last may not fall below the third.
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_closed_test_of_bonferroni(seed):
    """Marcus, Peritz & Gabriel 1976: a hypothesis falls when every intersection that holds it falls."""
    p = np.random.default_rng(seed).random(5) ** 3
    families = [family for size in range(1, 6) for family in combinations(range(5), size)]
    expected = [max(min(1.0, len(f) * p[list(f)].min()) for f in families if i in f) for i in range(5)]
    np.testing.assert_allclose(holm(p), expected)


def test_tests_that_were_not_made_do_not_count():
    adjusted = holm([0.02, np.nan, 0.5, np.nan])
    np.testing.assert_allclose(adjusted[[0, 2]], [0.04, 0.5])
    assert np.isnan(adjusted[[1, 3]]).all()
    assert np.isnan(holm([np.nan])).all()
    assert holm([]).shape == (0,)


def test_no_p_value_is_refused():
    with pytest.raises(ValueError, match=r"p-value 1 is 1\.5"):
        holm([0.5, 1.5])
