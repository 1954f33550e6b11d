import pytest

from histo_monai.reports.paper import is_papers_experiment, paper_number, paper_numbers

REAL = {"source": "raw", "patch_px": 256, "encoder": "resnet18", "has_weights": False}
BREAST = {"dataset": "breastpathq", "corpus": "breastpathq", "mpps": (0.5, 1.0, 2.0)}


def test_every_cell_of_the_five_tables_is_there():
    counts = paper_numbers().groupby("table").size()
    # Methods x {fine-tuning, + CR} x alphas x metrics; values of mu or n_aug x metrics of two datasets.
    assert counts.to_dict() == {
        **dict.fromkeys(("table_breastpathq", "table_camelyon16", "table_kather"), 4 * 2 * 4 * 2),
        **dict.fromkeys(("ablation_mu", "ablation_n_aug"), 7 * 4),
    }


@pytest.mark.parametrize(
    ("dataset", "split", "metric", "model", "value"),
    [
        ("breastpathq", "test", "icc_a", ("rsp", "paper", 0.1), 0.876),
        ("breastpathq", "test", "icc_b", ("moco", "finetune", 1.0), 0.718),
        ("camelyon16", "validation", "accuracy", ("rsp", "finetune", 0.25), 0.928),
        ("camelyon16", "test", "slide_auc", ("rsp", "paper", 0.25), 0.917),
        ("kather", "test", "mean_one_versus_rest_accuracy", ("random", "finetune", 0.1), 0.972),
        ("kather", "test", "weighted_f1", ("vae", "paper", 0.5), 0.903),
    ],
)
def test_numbers_are_found_under_our_names_of_metric_and_split(dataset, split, metric, model, value):
    method, training, alpha = model
    number = paper_number(dataset, split, metric, method=method, training=training, alpha=alpha)
    assert number is not None
    assert number.value == value


def test_the_ablations_are_of_their_own_mu_and_n_aug():
    model = {"method": "rsp", "training": "paper", "alpha": 0.1}
    assert paper_number("breastpathq", "test", "icc_a", **model, mu=1).value == 0.871
    assert paper_number("camelyon16", "test", "slide_auc", **model, n_aug=1).value == 0.569
    assert paper_number("camelyon16", "test", "slide_auc", **model, mu=3, n_aug=3) is None
    tuned = model | {"training": "finetune"}
    assert paper_number("breastpathq", "test", "icc_a", **tuned, mu=1).value == 0.701


@pytest.mark.parametrize(
    ("dataset", "split", "metric"),
    [
        ("camelyon16", "test", "accuracy"),  # The paper's is of validation patches.
        ("kather", "test", "accuracy"),  # The paper's "accuracy" is another one.
        ("kather", "validation", "weighted_f1"),
        ("own", "test", "accuracy"),
    ],
)
def test_what_the_paper_does_not_print_is_not_given(dataset, split, metric):
    assert paper_number(dataset, split, metric, method="rsp", training="finetune", alpha=0.1) is None
    assert paper_number("breastpathq", "test", "icc_a", method="rsp", training="finetune", alpha=0.2) is None


def test_only_real_data_of_its_corpus_resolutions_patch_size_and_encoder_are_the_papers():
    assert is_papers_experiment(**REAL, **BREAST)
    camelyon = {"corpus": "camelyon16", "mpps": (0.25, 0.5, 1.0)}
    assert is_papers_experiment(**REAL, dataset="kather", **camelyon)
    for other in (
        {"source": "phantom"},
        {"patch_px": 64},
        {"encoder": "resnet50"},
        {"has_weights": True},
        {"mpps": (2.0, 4.0, 8.0)},
        {"dataset": "own"},
        {"corpus": "camelyon16"},
    ):
        assert not is_papers_experiment(**{**REAL, **BREAST, **other})
