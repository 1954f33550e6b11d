from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from histo_monai.params import ParamsError, load_params, parse_params


@pytest.fixture
def tree(root: Path) -> Any:
    return yaml.safe_load((root / "params.yaml").read_text())


@pytest.mark.parametrize("name", ["params.yaml", "params/paper.yaml"])
def test_the_committed_files_are_valid(root: Path, name: str) -> None:
    load_params(root / name)


def test_paper_values_are_those_of_the_paper(root: Path) -> None:
    params = load_params(root / "params/paper.yaml")
    rsp = params.pretrain.rsp
    assert params.patch_px == 256
    assert params.corpora.breastpathq.mpps == (0.5, 1.0, 2.0)
    assert params.corpora.camelyon16.mpps == (0.25, 0.5, 1.0)
    assert (params.corpora.camelyon16.num_normal, params.corpora.camelyon16.num_tumor) == (35, 25)
    assert (params.corpora.breastpathq.num_train, params.corpora.breastpathq.num_validation) == (
        10_000,
        3_000,
    )
    assert (params.corpora.camelyon16.num_train, params.corpora.camelyon16.num_validation) == (62_156, 10_000)
    assert (rsp.epochs, rsp.batch_size, rsp.lr, rsp.momentum, rsp.weight_decay) == (250, 64, 0.01, 0.9, 1e-4)
    assert (rsp.lookahead.steps, rsp.lookahead.slow_step) == (5, 0.5)


def _set(tree: Any, dotted: str, value: object) -> Any:
    changed = copy.deepcopy(tree)
    *way, last = dotted.split(".")
    section = changed
    for key in way:
        section = section[key]
    section[last] = value
    return changed


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("pretrain.rsp.batchsize", 3, "did you mean 'batch_size'"),
        ("colour", 1, "unknown key"),
        ("pretrain.rsp.lr", 0, "in (0, inf)"),
        ("pretrain.rsp.lr", float("nan"), "in (0, inf)"),
        ("pretrain.rsp.lr", "fast", "a number"),
        ("pretrain.rsp.epochs", 1.5, "an integer"),
        ("pretrain.rsp.epochs", True, "an integer"),
        ("pretrain.rsp", None, "a section"),
        ("pretrain.augmentation.prob", 1.1, "[0, 1]"),
        ("index.skip_bad_slides", "yes", "true or false"),
        ("source", "web", "phantom or raw"),
        ("methods", [], "at least one"),
        ("methods", ["rsp", "rsp"], "none twice"),
        ("methods", "rsp", "entries"),
        ("corpora.camelyon16.mpps", [2.0, 1.0, 4.0], "each larger"),
        ("corpora.camelyon16.mpps", [1.0, 2.0], "three numbers"),
        ("patch_px", 8, "[32, 2048]"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_the_key_and_what_it_should_hold(
    tree: Any, key: str, value: object, says: str
) -> None:
    with pytest.raises(ParamsError) as caught:
        parse_params(_set(tree, key, value))
    message = str(caught.value)
    assert message.startswith(key.split("[")[0])
    assert says in message
    assert "\n" not in message


def _keys(tree: Any, way: str = "") -> list[str]:
    found = []
    for key, value in tree.items():
        found.append(f"{way}{key}")
        if isinstance(value, dict):
            found += _keys(value, f"{way}{key}.")
    return found


def test_every_key_is_needed(tree: Any) -> None:
    for dotted in _keys(tree):
        changed = copy.deepcopy(tree)
        *way, last = dotted.split(".")
        section = changed
        for key in way:
            section = section[key]
        del section[last]
        with pytest.raises(ParamsError, match=f"^{dotted}: missing key"):
            parse_params(changed)


def test_scientific_notation_without_a_dot_is_a_number(tree: Any) -> None:
    assert parse_params(_set(tree, "pretrain.rsp.lr", "1e-4")).pretrain.rsp.lr == 1e-4


def test_own_slides_are_never_simulated(tree: Any) -> None:
    with pytest.raises(ParamsError, match="source: raw"):
        parse_params(_set(tree, "corpus", "own"))


def test_a_file_that_is_missing_or_not_yaml_is_named(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"params\.yaml: cannot be read"):
        load_params(tmp_path / "params.yaml")
    (tmp_path / "broken.yaml").write_text("a: [1\nb: }")
    with pytest.raises(ParamsError, match=r"broken\.yaml: not YAML") as caught:
        load_params(tmp_path / "broken.yaml")
    assert "\n" not in str(caught.value)
