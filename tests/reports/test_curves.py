import itertools
import json
import warnings

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from histo_monai.comparison.label_counts import LabelsNeeded, LabelsSaved
from histo_monai.reports.curve_style import COLORS, lines, save
from histo_monai.reports.curves import against, against_labels
from histo_monai.reports.savings import labels_saved
from tests.reports.whole import assert_nothing_is_cut_off

METHODS = ("random", "vae", "moco", "rsp")
ALPHAS = (0.1, 0.25, 0.5, 1.0)


def points(methods=METHODS, trainings=("finetune", "paper"), alphas=ALPHAS, mus=(7,), n_augs=(7,)):
    rows = [
        {
            "dataset": "kather",
            "split": "test",
            "method": method,
            "training": training,
            "alpha": alpha,
            "num_labels": 600 * alpha,
            "mu": mu,
            "n_aug": n_aug,
            "metric": "macro_auc",
            "value": (value := 0.7 + 0.2 * alpha + 0.02 * METHODS.index(method) + 0.005 * mu * len(training)),
            "low": value - 0.05,
            "high": value + 0.03,
        }
        for method, training, alpha, mu, n_aug in itertools.product(methods, trainings, alphas, mus, n_augs)
    ]
    table = pd.DataFrame(rows)
    fine_tuned = table["training"] == "finetune"
    table["value"] = table["value"].where(~fine_tuned, 0.7 + 0.2 * table["alpha"])
    table["low"] = table["low"].where(~fine_tuned, 0.6)
    table["high"] = table["high"].where(~fine_tuned, 0.95)
    return table


def assert_is_drawn_whole(figure):
    canvas = FigureCanvasAgg(figure)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.draw_without_rendering()
        canvas.draw()
    assert_nothing_is_cut_off(np.asarray(canvas.buffer_rgba())[..., :3])


def curves_of(axis):
    """Lines with a marker that join points: color, whether dashed, whether open, values."""
    return [
        (line.get_color(), line.get_linestyle(), line.get_markerfacecolor(), line.get_ydata())
        for line in axis.get_lines()
        if line.get_marker() not in ("None", "x")
    ]


def labels(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.mark.parametrize(
    "table",
    [
        points(),
        points(methods=("rsp",), trainings=("paper",), alphas=(0.1,)),
        points(mus=(1, 7)),
        points(methods=("random", "rsp"), alphas=(0.1,)),
    ],
)
def test_curves_against_labels_are_drawn_whole(table):
    assert_is_drawn_whole(against_labels(table, "macro_auc"))


def test_each_curve_has_the_color_of_its_method_and_the_look_of_its_training():
    figure = against_labels(points().sample(frac=1, random_state=0), "macro_auc")
    drawn = curves_of(figure.axes[0])
    assert len(drawn) == 8
    for (color, dashes, face, values), line in zip(drawn, lines(points()), strict=True):
        assert color == COLORS[line.method] == line.color
        assert (dashes == "--") == (line.training == "finetune") == (face == "white")
        wanted = points().query("method == @line.method and training == @line.training")
        assert np.allclose(values, wanted["value"])
    assert labels(figure)[:3] == ["random fine-tuned", "random + CR", "VAE fine-tuned"]
    assert figure.axes[0].get_xscale() == "log"


def test_the_axis_tells_counts_and_shares():
    (axis,) = against_labels(points(alphas=(0.125, 1)), "macro_auc").axes
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["75\n12.5 %", "600\n100 %"]
    assert np.allclose(axis.get_xticks(), [75, 600])


def test_intervals_of_different_lines_stand_side_by_side():
    (axis,) = against_labels(points(alphas=(0.1,)), "macro_auc").axes
    places = [bar.get_segments()[0][0][0] for bar in axis.collections]
    assert len(places) == len(set(places)) == 8
    assert np.exp(np.mean(np.log(places))) == pytest.approx(60)
    assert min(places) > axis.get_xlim()[0]
    assert max(places) < axis.get_xlim()[1]


def test_a_failed_point_is_a_cross_in_a_curve_that_breaks():
    table = points(methods=("rsp",), trainings=("paper",))
    table.loc[1, ["num_labels", "value", "low", "high"]] = np.nan
    figure = against_labels(table, "macro_auc")
    (axis,) = figure.axes
    (cross,) = [line for line in axis.get_lines() if line.get_marker() == "x" and len(line.get_xdata())]
    assert cross.get_xdata() == pytest.approx([150])
    ((*_, values),) = curves_of(axis)
    assert np.isnan(values).tolist() == [False, True, False, False]
    assert labels(figure) == ["RSP + CR", "failed"]
    assert_is_drawn_whole(figure)


def test_there_is_a_panel_for_each_mu_and_n_aug_and_the_fine_tuned_are_in_all():
    figure = against_labels(points(methods=("rsp",), mus=(1, 7), n_augs=(2,)), "macro_auc")
    assert [axis.get_title() for axis in figure.axes] == ["mu 1, n_aug 2", "mu 7, n_aug 2"]
    assert [len(curves_of(axis)) for axis in figure.axes] == [2, 2]
    first, second = (curves_of(axis) for axis in figure.axes)
    assert np.array_equal(first[0][-1], second[0][-1])
    assert not np.allclose(first[1][-1], second[1][-1])


@pytest.mark.parametrize("axis", ["mu", "n_aug"])
def test_a_sweep_starts_at_the_fine_tuned_model(axis):
    table = points(methods=("random", "rsp"), alphas=(0.1, 1.0), mus=(1, 3, 7), n_augs=(1, 3, 7))
    figure = against(table[table["n_aug" if axis == "mu" else "mu"] == 3], axis, "macro_auc")
    other = "n_aug" if axis == "mu" else "mu"
    titles = [panel.get_title() for panel in figure.axes]
    assert titles == [f"10 % of the labels, {other} 3", f"100 % of the labels, {other} 3"]
    for panel in figure.axes:
        ticks = [tick.get_text() for tick in panel.get_xticklabels()]
        assert ticks == ["fine-\ntuned", "1", "3", "7"]
        assert [len(values) for *_, values in curves_of(panel)] == [1, 3, 1, 3]
    assert_is_drawn_whole(figure)


def test_a_sweep_of_one_step_is_drawn_whole():
    assert_is_drawn_whole(against(points(methods=("rsp",), alphas=(0.1,)), "mu", "macro_auc"))


def test_a_method_of_ones_own_has_a_color_of_its_own():
    table = points(alphas=(0.1,)).replace({"method": {"vae": "zebra", "moco": "byol"}})
    colors = {line.method: line.color for line in lines(table)}
    assert len(set(colors.values())) == 4
    assert colors["rsp"] == COLORS["rsp"]
    assert colors == {line.method: line.color for line in lines(table.iloc[::-1])}


def test_the_same_points_give_the_same_bytes(tmp_path):
    first = save(against_labels(points(), "macro_auc"), tmp_path / "new" / "a.b")
    figure = against_labels(points(), "macro_auc")
    figure.draw_without_rendering()
    second = save(figure, tmp_path / "second")
    assert [path.name for path in first] == ["a.b.png", "a.b.svg"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert b"<dc:date>" not in first[1].read_bytes()
    assert b"Matplotlib v" not in first[1].read_bytes()
    assert b"Software" not in first[0].read_bytes()


def saved_rows():
    answers = [
        (300.0, 200.0, 450.0, False, "within the sizes measured"),
        (0.0, 0.0, 90.0, False, "the curve is above the score with the fewest labels measured, 60, already"),
        (2000.0, 900.0, np.inf, True, "extrapolated beyond 600 labels by an inverse power law"),
        (np.inf, np.inf, np.inf, False, "the score lies above the curve, which does not rise"),
        (np.nan, np.nan, np.nan, False, "more than half of the bootstrap replicates are undefined"),
    ]
    needed = [LabelsNeeded(*answer, 60.0, 6000.0 if answer[3] else 600.0) for answer in answers]
    pairs = [("vae", "finetune"), ("random", "paper"), ("moco", "paper"), ("rsp", "finetune")]
    about = [{"method": method, "training": training} for method, training in [*pairs, ("rsp", "paper")]]
    return pd.DataFrame([row | LabelsSaved(n, 60.0).as_dict() for row, n in zip(about, needed, strict=True)])


def test_labels_saved_has_a_dot_where_there_is_a_number_and_an_arrow_where_an_end_is_open():
    figure = labels_saved(saved_rows())
    axis, texts = figure.axes
    dots = [line for line in axis.get_lines() if line.get_marker() == "o"]
    assert [(dot.get_xdata()[0], dot.get_ydata()[0]) for dot in dots] == [(5, 0), (pytest.approx(100 / 3), 2)]
    assert [dot.get_markerfacecolor() for dot in dots] == [COLORS["vae"], "white"]
    arrows = [(note.xy, np.sign(note.xyann[0])) for note in axis.texts]
    assert arrows == [((1, 1), -1), ((100, 2), 1), ((10, 3), 1)]
    lines = [text.get_text().replace("\n", " ") for text in texts.texts]
    assert "5 (3.33 to 7.5) times as many" in lines
    assert "more than 10 times as many" in lines
    assert "more than half of the bootstrap replicates are undefined" in lines
    assert [tick.get_text() for tick in axis.get_yticklabels()][2] == "MoCo + CR, 60 labels"
    assert_is_drawn_whole(figure)


@pytest.mark.parametrize("row", range(5))
def test_labels_saved_of_one_row_is_drawn_whole(row):
    assert_is_drawn_whole(labels_saved(saved_rows().iloc[[row]]))


def test_labels_saved_survives_a_csv(tmp_path):
    saved_rows().to_csv(tmp_path / "saved.csv", index=False)
    paths = [
        save(labels_saved(table), tmp_path / name)[0]
        for name, table in (("a", saved_rows()), ("b", pd.read_csv(tmp_path / "saved.csv")))
    ]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_what_cannot_be_drawn_is_refused():
    table = points()
    with pytest.raises(ValueError, match="the table lacks low, high: it has dataset"):
        against_labels(table.drop(columns=["low", "high"]), "macro_auc")
    with pytest.raises(ValueError, match="no point of auc: there are points of macro_auc"):
        against_labels(table, "auc")
    with pytest.raises(ValueError, match="points of split test, validation: expected one"):
        against_labels(pd.concat([table, table.assign(split="validation")]), "macro_auc")
    with pytest.raises(
        ValueError, match="two different points of macro_auc at dataset kather, split test, me"
    ):
        against_labels(pd.concat([table, table.assign(value=0.5)]), "macro_auc")
    with pytest.raises(ValueError, match="num_labels is missing in every row"):
        against_labels(table.assign(num_labels=np.nan), "macro_auc")
    with pytest.raises(ValueError, match="nothing depends on mu"):
        against(points(trainings=("finetune",)), "mu", "macro_auc")
    with pytest.raises(ValueError, match="the table lacks method, training"):
        labels_saved(pd.DataFrame())
    with pytest.raises(ValueError, match="no row to draw"):
        labels_saved(saved_rows().iloc[:0])


@pytest.mark.parametrize("name", ["labels", "sweep"])
def test_the_templates_for_dvc_plots_have_our_colors_and_dvcs_anchors(root, name):
    text = (root / ".dvc" / "plots" / f"{name}.json").read_text(encoding="utf-8")
    template = json.loads(text)
    assert template["data"] == {"values": "<DVC_METRIC_DATA>"}
    assert all(f"<DVC_METRIC_{anchor}>" in text for anchor in ("X", "Y", "TITLE", "X_LABEL", "Y_LABEL"))
    scale = template["spec"]["encoding"]["color"]["scale"]
    assert dict(zip(scale["domain"], scale["range"], strict=True)) == COLORS
