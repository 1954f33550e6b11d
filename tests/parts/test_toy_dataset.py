"""A dataset from elsewhere, a file and a line, in a run of all stages: nothing of the package is edited."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

from histo_monai.data.readers.registry import DATASETS
from histo_monai.pipeline.cli import main
from histo_monai.pipeline.params import ParamsError, load_params
from histo_monai.pipeline.paths import Run
from tests.hostile.project import PARAMS, RUN, set_dotted
from tests.parts.toy_dataset import CLASSES, SPLITS, TOY

SECTIONS = {
    "corpora.toy": {"mpps": [1.0, 2.0, 4.0], "num_train": 16, "num_validation": 8, "every": 3},
    "labels.toy": {"validation": "separate", "mpp": 1.0, "num_per_slide": 4},
    "heatmap.toy": {"stride_um": 32.0},
}
SLIDES = [f"toy{number}" for number in range(len(SPLITS))]


@pytest.fixture
def project(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Params that name the toy, with sections of the other datasets taken out."""
    monkeypatch.chdir(tmp_path)
    for name, value in (("DEVICE", "cpu"), ("CPUS", "1"), ("WORKERS", "0")):
        monkeypatch.setenv(f"HISTO_MONAI_{name}", value)
    tree = yaml.safe_load((root / "params.yaml").read_text())
    for name, value in PARAMS.items():
        set_dotted(tree, name, value)
    parts = [tree[section] for section in ("corpora", "labels", "heatmap")]
    for part, name in itertools.product(parts, DATASETS):
        part.pop(name, None)
    monkeypatch.setitem(DATASETS, "toy", TOY)
    for name, value in (SECTIONS | dict.fromkeys(("dataset", "pretraining_dataset"), "toy")).items():
        set_dotted(tree, name, value)
    tree |= {"source": "phantom", "phantom": tree["phantom"] | {"slide_side_px": 512}}
    Path("params.yaml").write_text(yaml.safe_dump(tree))
    return tmp_path


@pytest.mark.slow
@pytest.mark.usefixtures("small_forests")
def test_a_toy_dataset_goes_through_all_stages(project: Path) -> None:
    stages = [("phantom",), ("index",), ("pretrain", "--method", "random")]
    stages += [(name, *RUN) for name in ("finetune", "consistency", "evaluate", "heatmap", "aggregate")]
    stages += [("features", "--method", "random"), ("mil", *RUN)]
    for call in (*stages, ("compare",)):
        assert main(call) == 0, call
    corpus = pd.read_csv("data/index/slides.csv")
    assert set(corpus["slide_id"]) == {"toy1", "toy2", "toy4", "toy5"}
    patches = pd.read_csv("data/index/patches.csv")
    assert patches.groupby("slide_id").size().to_dict() == dict.fromkeys(SLIDES, 4)
    assert dict(zip(patches["slide_id"], patches["split"], strict=True)) == dict(
        zip(SLIDES, SPLITS, strict=True)
    )
    assert "toys are not tissue" in json.loads(Path("data/index/labels.json").read_text())["warnings"]
    for kind in ("finetuned", "student"):
        description = json.loads(Run("random", 0, 0, "paper").models[kind].with_suffix(".json").read_text())
        assert (description["dataset"], description["classes"]) == ("toy", sorted(CLASSES))
    assert set(pd.read_csv("data/heatmaps/random-0-paper-0/slides.csv")["slide_id"]) == set(SLIDES)
    diagnosed = pd.read_csv("data/diagnosis/random-0-paper-0/slides.csv")
    assert set(diagnosed.loc[diagnosed["split"] == "test", "slide_id"]) == {"toy6", "toy7"}
    assert set(pd.read_csv("data/comparison/table.csv")["dataset"]) == {"toy"}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("dataset", "toi", "dataset: expected one of breastpathq, camelyon16, kather, own, toy, got 'toi'"),
        ("labels.toy.validation", "none", "labels.toy.validation: expected labeled or separate, got 'none'"),
        ("labels.toi", {}, "labels.toi: unknown key; did you mean 'toy'?"),
        ("labels.toy.num_per_slide", 0, "labels.toy.num_per_slide: expected an integer in [1, 1e+12], got 0"),
        ("corpora.toy", {}, "corpora.toy.mpps: missing key"),
        ("corpora.toy.every", 1, "corpora.toy.every: expected an integer in [2, inf), got 1"),
        ("heatmap.toy.stride", 1.0, "heatmap.toy.stride: unknown key; did you mean 'stride_um'?"),
    ],
)
def test_settings_of_a_dataset_are_checked_as_all_params_are(
    project: Path, name: str, value: object, message: str
) -> None:
    tree = yaml.safe_load(Path("params.yaml").read_text())
    set_dotted(tree, name, value)
    Path("params.yaml").write_text(yaml.safe_dump(tree))
    with pytest.raises(ParamsError) as caught:
        load_params(Path("params.yaml"))
    assert message in str(caught.value)
