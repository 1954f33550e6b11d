import numpy as np
import pytest
from matplotlib.text import Text
from sklearn.metrics import confusion_matrix

from histo_monai.evaluation.metrics import Estimate
from histo_monai.reports import figures
from histo_monai.reports.slide_figures import roc
from tests.reports.whole import assert_nothing_is_cut_off

NAMES = ["ADI", "BACK", "DEB", "LYM", "MUC", "MUS", "NORM", "STR", "TUM"]


def predictions(num_classes, num_rows=200, seed=0):
    random = np.random.default_rng(seed)
    probabilities = random.dirichlet(np.ones(num_classes) * 0.4, size=num_rows)
    return random.integers(num_classes, size=num_rows), probabilities


def assert_is_a_picture_with_a_white_border(picture):
    assert_nothing_is_cut_off(picture)
    assert picture.shape[0] > 300
    assert 400 < picture.shape[1] < 1200


@pytest.mark.parametrize(
    "classes", [["normal", "tumor"], NAMES[:5], NAMES, ["invasive carcinoma", "normal", "benign"]]
)
def test_confusion_is_drawn_whole_for_few_and_many_classes(classes):
    labels, probabilities = predictions(len(classes))
    decided = {"fine-tuned": probabilities.argmax(axis=1), "student": labels}
    assert_is_a_picture_with_a_white_border(figures.confusion(labels, decided, classes))
    alone = figures.confusion(labels, {"student": labels}, classes)
    assert alone.shape[0] > 300


def test_the_counts_drawn_are_those_of_scikit_learn():
    labels, probabilities = predictions(4)
    decided = probabilities.argmax(axis=1)
    counts = figures.confusion_counts(labels, decided, 5)
    assert np.array_equal(counts, confusion_matrix(labels, decided, labels=range(5)))


def test_classes_without_a_name_are_refused():
    with pytest.raises(ValueError, match=r"outside 0\.\.1: there are 2 names"):
        figures.confusion([0, 1], {"student": [0, 2]}, ["normal", "tumor"])
    with pytest.raises(ValueError, match="one class per row"):
        figures.confusion_counts([0, 1], [0], 2)


@pytest.mark.parametrize("num_classes", [2, 9])
def test_reliability_is_drawn_whole(num_classes):
    labels, probabilities = predictions(num_classes)
    sharp = probabilities**3 / (probabilities**3).sum(axis=1, keepdims=True)
    picture = figures.reliability_diagram(labels, {"fine-tuned": probabilities, "student": sharp}, 15)
    assert_is_a_picture_with_a_white_border(picture)


def test_scores_are_drawn_whole_for_two_raters_and_for_one():
    random = np.random.default_rng(0)
    truth = random.random(150)
    ratings = {f"pathologist {name}": np.round(truth + 0.1 * random.normal(size=150), 1) for name in "AB"}
    assert_is_a_picture_with_a_white_border(figures.scores(truth, ratings))
    assert_is_a_picture_with_a_white_border(figures.scores(truth, {"score": truth}))


def test_the_line_is_the_mean_of_each_tenth_that_has_five_rows():
    truth = np.r_[np.full(5, 0.05), np.full(4, 0.55), np.full(6, 1.0)]
    predicted = np.r_[[0, 0.1, 0.2, 0.3, 0.4], np.ones(4), np.full(6, 0.5)]
    x, y = figures.tenths(truth, predicted, 0.0, 1.0)
    assert np.allclose(x, [0.05, 1.0])
    assert np.allclose(y, [0.2, 0.5])


def test_a_roc_speaks_of_the_classes_that_it_is_of(monkeypatch):
    written = []
    draw = Text.draw

    def noted(text, *arguments, **more):
        written.append(text.get_text())
        return draw(text, *arguments, **more)

    monkeypatch.setattr(Text, "draw", noted)
    area = Estimate(0.5, 0.2, 0.8, 4)
    of = ([True, False, True, False], {"attention": [0.1, 0.2, 0.3, 0.4]}, {"attention": area})
    assert_nothing_is_cut_off(roc(*of, ("benign", "malign")))
    words = " ".join(written)
    assert "2 malign and 2 benign slides" in words
    assert "benign slides called malign" in words
    assert "tumor" not in words
