import numpy as np
import pytest

from histo_monai.evaluation.metrics import (
    FALSE_POSITIVES_PER_SLIDE,
    Resampling,
    SlideDetections,
    froc,
    froc_replicates,
)


def simulated_slides(seed, num_slides=24, ties=True):
    """Slides with 0 to 3 lesions and 0 to 12 false positives; scores of two digits, so that some are equal."""
    random = np.random.default_rng(seed)
    digits = 2 if ties else 9
    slides = []
    for _ in range(num_slides):
        false = random.uniform(0.02, 1, random.integers(13)).round(digits)
        lesions = random.uniform(0.3, 1, random.integers(4)).round(digits)
        slides.append(SlideDetections(false, lesions * (random.random(len(lesions)) < 0.8)))
    return slides


def froc_by_loops(slides):
    """The challenge's definition, one threshold after the other, and straight lines between the points."""
    false = [score for slide in slides for score in slide.false_positives]
    lesions = [score for slide in slides for score in slide.lesions]
    points = [(0.0, 0.0)]
    for threshold in sorted({*false, *lesions} - {0}, reverse=True):
        fps = sum(score >= threshold for score in false) / len(slides)
        result = sum(score >= threshold for score in lesions) / len(lesions)
        points.append((fps, result))
    sensitivities = []
    for target in (0.25, 0.5, 1, 2, 4, 8):
        below = [point for point in points if point[0] <= target]
        above = [point for point in points if point[0] > target]
        x0, y0 = below[-1]
        if above:
            x1, y1 = above[0]
            y0 += (target - x0) / (x1 - x0) * (y1 - y0)
        sensitivities.append(y0)
    return points, sensitivities


def values(curve):
    return [curve.sensitivities[target].value for target in FALSE_POSITIVES_PER_SLIDE]


def test_a_worked_example():
    """Two slides; from the highest score: hit, false, hit, false, false; a third lesion is missed.

    (false positives per slide, sensitivity): (0, 1/3), (1/2, 1/3), (1/2, 2/3), (1, 2/3), (3/2, 2/3).
    """
    slides = [SlideDetections([0.8, 0.4], [0.9, 0.0]), SlideDetections([0.3], [0.6])]
    curve = froc(slides, seed=0)
    np.testing.assert_allclose(curve.fps_per_slide, [0, 0, 0.5, 0.5, 1, 1.5])
    np.testing.assert_allclose(curve.sensitivity, np.array([0, 1, 1, 2, 2, 2]) / 3)
    np.testing.assert_allclose(values(curve), np.array([1, 2, 2, 2, 2, 2]) / 3)
    assert curve.score.value == pytest.approx((1 + 5 * 2) / 18)
    assert (curve.num_lesions, curve.num_slides, curve.score.n) == (3, 2, 2)


def test_between_two_thresholds_the_sensitivity_is_interpolated():
    """Of four slides, one lesion in two is found before two false positives of one score, the other with them."""
    slides = [SlideDetections([0.5], [0.9]), SlideDetections([0.5], [0.5]), *[SlideDetections([], [])] * 2]
    assert values(froc(slides, seed=0)) == [0.75, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("seed", range(6))
def test_the_curve_is_the_challenges_by_naive_loops(seed):
    slides = simulated_slides(seed)
    curve = froc(slides, seed=0, num_replicates=2)
    points, sensitivities = froc_by_loops(slides)
    np.testing.assert_allclose(np.column_stack([curve.fps_per_slide, curve.sensitivity]), points)
    np.testing.assert_allclose(values(curve), sensitivities)
    assert curve.score.value == pytest.approx(np.mean(sensitivities))


@pytest.mark.parametrize("groups", [None, np.arange(24) // 3])
def test_replicates_are_the_scores_of_the_resampled_slides(groups):
    slides = simulated_slides(7)
    resampling = Resampling(24, groups, seed=3, num_replicates=40)
    value, replicates = froc_replicates(slides, resampling)["froc"]
    drawn = [
        np.repeat(np.arange(24), times.astype(int))
        for counts in resampling.blocks()
        for times in resampling.weights(counts).T
    ]
    expected = [np.mean(froc_by_loops([slides[n] for n in rows])[1]) for rows in drawn]
    np.testing.assert_allclose(replicates, expected)
    curve = froc(slides, groups=groups, seed=3, num_replicates=40)
    assert curve.score == resampling.estimate(value, replicates)
    assert curve.score.low < curve.score.value < curve.score.high


def test_the_interval_covers_the_truth_about_as_often_as_stated():
    """Two lesions a slide, each found with one score by a coin; one false positive of lower score a slide."""
    covered = 0
    for number in range(100):
        coins = np.random.default_rng(number).random((40, 2)) < 0.6
        slides = [SlideDetections([0.5], 0.9 * coin) for coin in coins]
        score = froc(slides, seed=number, num_replicates=200).score
        covered += score.low <= 0.6 <= score.high
    assert 87 <= covered <= 99


def test_all_lesions_found_without_a_false_positive_is_one():
    slides = [SlideDetections([], [0.7]), SlideDetections([], [0.7, 0.7]), SlideDetections([], [])]
    curve = froc(slides, seed=0)
    assert values(curve) == [1] * 6
    assert (curve.score.value, curve.score.low, curve.score.high) == (1, 1, 1)


def test_all_lesions_found_below_the_false_positives_count_too():
    slides = [SlideDetections([0.9, 0.8, 0.7], [0.6, 0.5])]
    assert values(froc(slides, seed=0)) == pytest.approx([0, 0, 0, 0, 1, 1])


def test_without_detections_nothing_is_found():
    curve = froc([SlideDetections([], [0.0]), SlideDetections([], [])], seed=0)
    assert values(curve) == [0] * 6
    assert curve.score.value == 0


def test_false_positives_alone_find_nothing():
    assert values(froc([SlideDetections([0.9, 0.2], [0.0, 0.0])], seed=0)) == [0] * 6


def test_without_a_lesion_the_sensitivity_is_undefined():
    curve = froc([SlideDetections([0.4], []), SlideDetections([], [])], seed=0)
    assert np.isnan([curve.score.value, curve.score.low, *values(curve), *curve.sensitivity]).all()
    assert curve.num_lesions == 0


def test_one_slide_gives_no_interval():
    score = froc([SlideDetections([0.4], [0.5])], seed=0).score
    assert score.value == 1
    assert np.isnan([score.low, score.high]).all()


def test_two_patients_with_four_slides_are_two_groups():
    assert froc(simulated_slides(0, 4), groups=["a", "a", "b", "b"], seed=0).score.n == 2


@pytest.mark.parametrize(
    ("slides", "message"),
    [
        ([], "at least one row"),
        ([SlideDetections([0.0], [0.5])], "slide 0: a false positive has score 0"),
        ([SlideDetections([], []), SlideDetections([], [-0.1])], "slide 1: lesion scores"),
        ([SlideDetections([np.nan], [])], "slide 0: false positive scores"),
    ],
)
def test_what_is_no_detection_is_refused(slides, message):
    with pytest.raises(ValueError, match=message):
        froc(slides, seed=0)


def test_a_resampling_of_other_slides_is_refused():
    with pytest.raises(ValueError, match="24 slides for a resampling of 5 rows"):
        froc_replicates(simulated_slides(0), Resampling(5, None, seed=0, num_replicates=3))
