from __future__ import annotations

import copy
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from histo_monai.data.readers.registry import DATASETS
from histo_monai.models.settings import COLOR
from histo_monai.pipeline.params import ParamsError, check_run, load_params, parse_params
from histo_monai.pipeline.params.file import read_tree
from histo_monai.pipeline.params.selection import selected
from histo_monai.pretraining import PRETEXTS
from histo_monai.semisupervised.settings import StudentRecipe
from histo_monai.utils.settings.reader import as_tree
from histo_monai.utils.settings.recipe import LABEL_KINDS, label_kind
from tests.recipes import STRONG_VALUES


@pytest.fixture
def tree(root: Path) -> Any:
    return yaml.safe_load((root / "params.yaml").read_text())


@pytest.fixture
def dvc_yaml() -> Any:
    """DVC's own reader; imported here, so that tests of the GPU are collected where DVC is not installed."""
    from dvc.utils.serialize import _yaml

    return _yaml


@pytest.mark.parametrize("name", ["params.yaml", "params/paper.yaml"])
def test_the_committed_files_are_valid(root: Path, name: str) -> None:
    load_params(root / name)


def test_params_are_read_without_the_libraries_that_train(root: Path) -> None:
    """In a process of its own, with every method, dataset and student that there is."""
    code = (
        "import sys; from pathlib import Path; from histo_monai.pipeline.params import load_params; "
        "load_params(Path('params.yaml')); print(*sys.modules)"
    )
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split()
    assert "histo_monai.semisupervised.settings" in loaded
    assert not {"torch", "torchvision", "timm", "monai", "ignite", "cv2", "pandas"} & set(loaded)


def test_help_waits_for_no_library_that_it_does_not_use(root: Path) -> None:
    code = """
import contextlib, runpy, sys
sys.argv[1:] = ["--help"]
with contextlib.suppress(SystemExit):
    runpy.run_module("histo_monai", run_name="__main__")
print(*sys.modules)
"""
    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    ).stdout
    assert "suggest" in printed
    loaded = printed.splitlines()[-1].split()
    assert "histo_monai.pipeline.paths" in loaded
    assert not {
        "torch",
        "torchvision",
        "timm",
        "monai",
        "ignite",
        "cv2",
        "pandas",
        "scipy",
        "matplotlib",
    } & set(loaded)


def test_paper_values_are_those_of_the_paper(root: Path) -> None:
    params = load_params(root / "params/paper.yaml")
    rsp = params.pretrain.methods["rsp"]
    assert params.patch_px == 256
    assert params.corpora["breastpathq"].mpps == (0.5, 1.0, 2.0)
    assert params.corpora["camelyon16"].mpps == (0.25, 0.5, 1.0)
    assert (params.corpora["camelyon16"].num_normal, params.corpora["camelyon16"].num_tumor) == (35, 25)
    assert (params.corpora["breastpathq"].num_train, params.corpora["breastpathq"].num_validation) == (
        10_000,
        3_000,
    )
    assert (params.corpora["camelyon16"].num_train, params.corpora["camelyon16"].num_validation) == (
        62_156,
        10_000,
    )
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
    ("key", "value", "expected"),
    [
        ("pretrain.rsp.batchsize", 3, "did you mean 'batch_size'"),
        ("color", 1, "unknown key"),
        ("pretrain.rsp.lr", 0, "in (0, inf)"),
        ("pretrain.rsp.lr", float("nan"), "in (0, inf)"),
        ("pretrain.rsp.lr", "fast", "a number"),
        ("pretrain.rsp.epochs", 1.5, "an integer"),
        ("pretrain.rsp.epochs", True, "an integer"),
        ("pretrain.rsp", None, "a section"),
        ("pretrain.augmentation.prob", 1.1, "[0, 1]"),
        ("index.skip_bad_slides", "yes", "true or false"),
        ("source", "web", "phantom or raw"),
        ("pretraining_methods", [], "at least one"),
        ("pretraining_methods", ["rsp", "rsp"], "none twice"),
        ("pretraining_methods", "rsp", "entries"),
        (
            "pretraining_methods",
            ["rspp"],
            "one of random, pretrained, vae, moco, rsp, rsp_moco, dino, got 'rspp'; did you mean 'rsp'?",
        ),
        ("pretraining_methods", [3], "one of random, pretrained, vae, moco, rsp, rsp_moco, dino, got 3"),
        ("pretrain.mocco", {}, "unknown key; did you mean 'moco'?"),
        ("pretrain.methods", {}, "unknown key"),
        ("pretrain.rsp.lookahead", {"steps": 5}, "lookahead.slow_step: missing key"),
        ("corpora.camelyon16.mpps", [2.0, 1.0, 4.0], "each larger"),
        ("corpora.camelyon16.mpps", [1.0, 2.0], "three numbers"),
        ("patch_px", 8, "[32, 2048]"),
        ("encoder.name", None, "expected text, got nothing"),
        ("encoder.weights", 3, "expected text, or null, got 3"),
        ("encoder.sha256", "ab", "encoder.weights is null"),
        ("encoder.mean", [0.5, 0.5], "a list of 3"),
        ("encoder.mean", [0.5, 0.5, 0.5], "only one of mean and std"),
        ("encoder.std", [0.5, 0.5, 0], "in (0, 1]"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_the_key_and_what_it_should_hold(
    tree: Any, key: str, value: object, expected: str
) -> None:
    with pytest.raises(ParamsError) as caught:
        parse_params(_set(tree, key, value))
    message = str(caught.value)
    assert message.startswith(key.split("[")[0])
    assert expected in message
    assert "\n" not in message


def test_a_side_that_a_published_encoder_does_not_take_is_refused(tree: Any) -> None:
    """Each side of its own is a multiple of its patches of 14 px; 128 px, of `init --dataset own`, is none."""
    tree["encoder"] |= {"name": "uni2-h", "side": 112}
    assert parse_params(tree).encoder.side == 112
    with pytest.raises(ParamsError, match=r"^encoder\.side: 128, .* 14 px\. Fix: set null \(224 px\)"):
        parse_params(_set(tree, "encoder.side", 128))


def test_a_dataset_that_is_no_corpus_is_not_suggested_as_one(tree: Any) -> None:
    with pytest.raises(
        ParamsError, match=r"^pretraining_dataset: expected one of .*, got 'kathr'$"
    ) as caught:
        parse_params(_set(tree, "pretraining_dataset", "kathr"))
    assert "kather" not in str(caught.value)


def _keys(tree: Any, way: str = "") -> list[str]:
    result = []
    for key, value in tree.items():
        result.append(f"{way}{key}")
        if isinstance(value, dict):
            result += _keys(value, f"{way}{key}.")
    return result


def _without(tree: Any, dotted: str) -> Any:
    changed = copy.deepcopy(tree)
    *way, last = dotted.split(".")
    section = changed
    for key in way:
        section = section[key]
    del section[last]
    return changed


SECTIONS = [f"labels.{name}" for name in DATASETS]
SECTIONS += [f"{kind}.{name}" for kind in ("corpora", "heatmap") for name in DATASETS if name != "kather"]


def test_every_key_is_needed(tree: Any) -> None:
    tree["pretraining_methods"] = list(PRETEXTS)
    tree["encoder"]["weights"] = "data/weights/a.pt"
    parse_params(tree)
    unused = {dotted for dotted in SECTIONS if not dotted.endswith(tree["dataset"])}
    other = "|".join(name for name in DATASETS if name != tree["dataset"])
    unused |= {
        key for key in _keys(tree) if re.fullmatch(rf"(finetune|consistency)\.paper\.\w+\.({other})", key)
    }
    unused |= {
        f"consistency.methods.{name}"
        for name in tree["consistency"]["methods"]
        if name not in tree["semisupervised_methods"]
    }
    for dotted in set(_keys(tree)) - unused:
        changed = copy.deepcopy(tree)
        *way, last = dotted.split(".")
        section = changed
        for key in way:
            section = section[key]
        del section[last]
        with pytest.raises(ParamsError, match=f"^{dotted}: missing key"):
            parse_params(_without(tree, dotted))


@pytest.mark.parametrize("dotted", SECTIONS)
def test_sections_of_a_dataset_are_needed_where_it_is_in_use(dotted: str, tree: Any) -> None:
    section, name = dotted.split(".")
    del tree[section][name]
    other = {
        "dataset": "kather",
        "pretraining_dataset": "breastpathq" if name != "breastpathq" else "camelyon16",
    }
    if name != "kather":
        assert parse_params(tree | other)
    used = {"dataset": name, "source": "raw"}
    with pytest.raises(ParamsError, match=rf"^{section}\.{name}: missing key\. Fix: add this section$"):
        parse_params(tree | used)


def test_a_value_of_a_recipe_is_for_all_kinds_of_labels_or_for_each(tree: Any) -> None:
    of_kind = {"two_classes": 0.25, "many_classes": 0.5, "scores": 0.75}
    for stage in ("finetune", "consistency"):
        tree[stage]["recipe"] |= {"stain_jitter": of_kind, "lr": 0.5, "interpolation_weights": [0.0, 0.5]}
    params = parse_params(tree)
    for kind, classes in (("two_classes", ["b", "a"]), ("many_classes", ["a", "b", "c"]), ("scores", None)):
        for recipe in (
            params.finetune_section(label_kind(classes)),
            params.student_recipe("fixmatch", label_kind(classes)),
        ):
            own = as_tree(recipe)
            assert (own["stain_jitter"], own["lr"], own["interpolation_weights"]) == (
                of_kind[kind],
                0.5,
                (0.0, 0.5),
            )


@pytest.mark.parametrize(
    ("override", "key", "values"),
    [
        ("finetune.recipe.lr=3e-4", "lr", (3e-4, 3e-4, 3e-4)),
        ("finetune.recipe.stain_jitter=0.25", "stain_jitter", (0.25, 0.25, 0.25)),
        ("finetune.recipe.stain_jitter.scores=0.25", "stain_jitter", (0.1, 0.0, 0.25)),
        ("finetune.recipe.lr={two_classes: 0.1, many_classes: 0.2, scores: 0.3}", "lr", (0.1, 0.2, 0.3)),
    ],
)
def test_an_experiment_sets_a_value_of_a_recipe_for_all_kinds_or_for_each(
    override: str, key: str, values: tuple[float, ...], root: Path, tmp_path: Path
) -> None:
    from dvc.utils.hydra import apply_overrides

    path = tmp_path / "params.yaml"
    shutil.copy(root / "params.yaml", path)
    apply_overrides(path, [override])
    params = load_params(path)
    assert tuple(getattr(params.finetune_section(kind), key) for kind in LABEL_KINDS) == values


def test_without_a_recipe_fine_tuning_has_the_papers_values_of_the_dataset(tree: Any) -> None:
    tree["finetune"] |= {"recipe": None, "paper": tree["finetune"]["paper"] | {"epochs": 3}}
    tree["finetune"]["paper"]["lr"] = {"camelyon16": 0.25, "kather": 0.5}
    for dataset, lr in (("camelyon16", 0.25), ("kather", 0.5)):
        section = parse_params(tree | {"dataset": dataset}).finetune_section("many_classes")
        assert (section.lr, section.epochs) == (lr, 3)
    with pytest.raises(
        ParamsError, match=r"^finetune\.paper\.lr\.breastpathq: missing key\. Fix: add a value$"
    ):
        parse_params(tree | {"dataset": "breastpathq"})


@pytest.mark.parametrize("key", ["side", "arguments"])
def test_a_file_of_an_earlier_version_is_refused_with_the_line_to_add(key: str, tree: Any) -> None:
    del tree["encoder"][key]
    with pytest.raises(
        ParamsError, match=rf"^encoder\.{key}: missing key; .*Fix: add `{key}: null` below encoder$"
    ):
        parse_params(tree)


@pytest.mark.parametrize(
    ("value", "depths"),
    [(None, (None,)), (2, (2,)), ([3], (3,)), ([None, 3, 1], (1, 3, None)), ([None, 0], (COLOR, None))],
)
def test_depths_of_features_are_one_value_or_a_list(
    value: object, depths: tuple[int | None, ...], tree: Any
) -> None:
    tree["features"]["depth"] = value
    tree["finetune"]["mode"] = "head"
    tree["semisupervised_methods"] = ["supervised"]
    params = parse_params(tree)
    assert params.features.depths == depths
    assert parse_params(json.loads(json.dumps(as_tree(params)))) == params
    if not isinstance(value, list):
        assert as_tree(params)["features"]["depth"] == value


@pytest.mark.parametrize("value", [-1, [1, -1], [1, 1], [], "1", 1.0, [[1]], True])
def test_depths_of_another_kind_are_refused(value: object, tree: Any) -> None:
    tree["features"]["depth"] = value
    with pytest.raises(ParamsError, match=r"^features\.depth(\[\d\])?: expected "):
        parse_params(tree)


def test_color_stands_beside_another_depth_in_every_mode(tree: Any) -> None:
    tree["features"]["depth"] = [0, None]
    assert parse_params(tree).features.depths == (COLOR, None)
    tree["features"]["depth"] = [0]
    with pytest.raises(ParamsError, match=r"^features\.depth: .* Fix: add null"):
        parse_params(tree)


@pytest.mark.parametrize("mode", ["all", "last", "adapters"])
def test_several_depths_need_a_head(mode: str, tree: Any) -> None:
    tree["features"]["depth"] = [1, None]
    tree["finetune"]["mode"] = mode
    with pytest.raises(ParamsError, match=rf"^features\.depth: .*{mode}.* Fix: set finetune.mode: head"):
        parse_params(tree)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([1], "encoder.arguments: expected a section of names"),
        ({"depth of it": 1}, "encoder.arguments: expected a section of names"),
        ({"depth": [1]}, "encoder.arguments.depth: expected a finite number, text"),
        ({"init_values": float("nan")}, "encoder.arguments.init_values: expected a finite number, text"),
    ],
)
def test_arguments_of_an_encoder_are_names_with_plain_values(value: object, expected: str, tree: Any) -> None:
    tree["encoder"]["arguments"] = value
    with pytest.raises(ParamsError) as caught:
        parse_params(tree)
    assert str(caught.value).startswith(expected)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("finetune.recipe.speed", 1, "finetune.recipe.speed: unknown key"),
        (
            "finetune.recipe.stain_jitter",
            {"two_classes": 0.1},
            "stain_jitter.many_classes: missing key; expected a number",
        ),
        (
            "finetune.recipe.stain_jitter.score",
            0.1,
            "stain_jitter.score: unknown key; did you mean 'scores'?",
        ),
        ("finetune.recipe.stain_jitter.scores", 2, "stain_jitter.scores: expected a number in [0, 1], got 2"),
        (
            "finetune.recipe.stain_jitter.scores",
            {"own": 0.1},
            "stain_jitter.scores: expected a number in [0, 1], got {",
        ),
        ("consistency.recipe", None, "consistency.recipe: expected a section with keys, got nothing"),
        ("consistency.recipe.epochs", 0.5, "recipe.epochs: expected an integer in [1, 1e+12], got 0.5"),
        (
            "consistency.methods.spatial_neighbors.stain_jitter",
            {"scores": 0.1},
            "neighbors.stain_jitter.two_classes: missing key",
        ),
        (
            "consistency.methods.spatial_neighbors.stain_jitter",
            2,
            "neighbors.stain_jitter: expected a number in [0, 1], got 2",
        ),
        ("finetune.paper.lr.kathr", 0.1, "finetune.paper.lr.kathr: unknown key; did you mean 'kather'?"),
        ("finetune.recipe.scores", {"epochs": 1}, "finetune.recipe.scores: merged into finetune.recipe. Fix"),
        ("finetune.recipe", {"two_classes": None}, "recipe. Fix: write finetune.recipe: null"),
        (
            "consistency.own",
            {"epochs": 1},
            "consistency.own: merged into consistency.paper. Fix: write",
        ),
    ],
)
def test_a_wrong_value_that_differs_by_name_is_one_line_with_its_key(
    tree: Any, key: str, value: object, expected: str
) -> None:
    with pytest.raises(ParamsError) as caught:
        parse_params(_set(tree, key, value))
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_class_proportions_are_restored_and_weights_interpolated_where_patches_give_statistics(
    tree: Any,
) -> None:
    recipe = tree["consistency"]["recipe"]
    recipe |= {"match_class_proportions": False, "interpolation_weights": [0.0, 1.0], "batchnorm_patches": 0}
    assert not parse_params(tree).student_recipe("mixed_teacher", "two_classes").match_class_proportions
    recipe |= {"match_class_proportions": True}
    with pytest.raises(ParamsError, match=r"recipe\.match_class_proportions: true .*batchnorm_patches: 1024"):
        parse_params(tree)
    recipe |= {"match_class_proportions": False, "interpolation_weights": [0.0, 0.5]}
    with pytest.raises(ParamsError, match=r"recipe\.interpolation_weights: 0\.5, .*batchnorm_patches: 1024"):
        parse_params(tree)
    recipe |= {"match_class_proportions": True, "batchnorm_patches": 64}
    parsed = parse_params(tree).student_recipe("mixed_teacher", "two_classes")
    assert parsed.match_class_proportions
    assert parsed.interpolation_weights == (0.0, 0.5)


def test_what_a_method_has_of_a_recipe_stands_in_its_place(tree: Any) -> None:
    of_kind = {"two_classes": 0.25, "many_classes": 0.5, "scores": 0.75}
    own = {"epochs": 3, "unaugmented_fraction": 0.25, "stain_jitter": 0.25}
    tree["consistency"]["methods"]["spatial_neighbors"] |= own | {
        "unaugmented_fraction": of_kind,
        "stain_jitter": of_kind,
    }
    params = parse_params(tree)
    recipe = params.student_section("mixed_teacher", "two_classes")
    assert isinstance(recipe, StudentRecipe)
    assert as_tree(recipe) == as_tree(params.consistency.recipe.of("two_classes")) | {
        "strong": as_tree(params.consistency.strong)
    }
    assert params.student_section("spatial_neighbors", "two_classes") == dataclasses.replace(recipe, **own)
    without_steps = dataclasses.replace(recipe, epochs=0, interpolation_weights=(0.0,))
    assert params.student_section("adabn", "two_classes") == without_steps
    assert params.student_section("paper", "two_classes") == params.consistency.paper.of("camelyon16")


@pytest.mark.parametrize("keep", ["best", "last"])
def test_the_paper_s_student_keeps_the_best_epoch_or_the_last(tree: Any, keep: str) -> None:
    tree["consistency"]["methods"]["paper"]["keep"] = keep
    assert parse_params(tree).consistency.methods["paper"].keeps_best_epoch == (keep == "best")
    with pytest.raises(
        ParamsError, match=r"^consistency\.methods\.paper\.keep: expected best or last, got 'first'"
    ):
        parse_params(_set(tree, "consistency.methods.paper.keep", "first"))


def test_the_former_views_of_the_paper_s_student_are_values_of_params(tree: Any) -> None:
    former = {"within_limits": False, "affine_scale": [0.5, 0.6], "hue": [0.0, 0.5], "blur_mpp": None}
    tree["consistency"]["methods"]["paper"]["strong"] = former
    for stage in ("finetune", "consistency"):
        tree[stage]["paper"]["unaugmented_fraction"] = 0.0
    params = parse_params(tree)
    assert params.consistency.methods["paper"].strong == STRONG_VALUES
    sections = (params.finetune.paper.of("camelyon16"), params.student_section("paper", "two_classes"))
    assert [section.unaugmented_fraction for section in sections] == [0.0, 0.0]


def test_a_corpus_needs_its_section_whatever_the_dataset(tree: Any) -> None:
    del tree["corpora"]["breastpathq"]
    with pytest.raises(ParamsError, match=r"^corpora\.breastpathq: missing key"):
        parse_params(tree | {"pretraining_dataset": "breastpathq"})


def test_a_dataset_without_slides_is_no_corpus_and_has_no_maps(tree: Any) -> None:
    with pytest.raises(
        ParamsError, match=r"^pretraining_dataset: expected one of breastpathq, camelyon16, own, got 'kat"
    ):
        parse_params(tree | {"pretraining_dataset": "kather"})
    for section in ("corpora", "heatmap"):
        given = _set(tree, f"{section}.kather", {"stride_um": 64.0})
        with pytest.raises(ParamsError, match=rf"^{section}\.kather: unknown key"):
            parse_params(given)
    assert parse_params(tree | {"dataset": "kather"}).heatmap_section is None


def test_a_section_of_no_dataset_is_refused_with_the_nearest_name(tree: Any) -> None:
    for section in ("labels", "corpora", "heatmap"):
        with pytest.raises(
            ParamsError, match=rf"^{section}\.camelyon: unknown key; did you mean 'camelyon16'"
        ):
            parse_params(_set(tree, f"{section}.camelyon", {}))


def test_sections_are_given_back_as_the_file_has_them(tree: Any) -> None:
    assert json.loads(json.dumps(as_tree(parse_params(tree)))) == tree


def test_scientific_notation_without_a_dot_is_a_number(tree: Any) -> None:
    assert parse_params(_set(tree, "pretrain.rsp.lr", "1e-4")).pretrain.methods["rsp"].lr == 1e-4


def test_the_method_pretrained_needs_a_file(tree: Any) -> None:
    asked = _set(tree, "pretraining_methods", ["pretrained"])
    with pytest.raises(ParamsError, match=r"^encoder\.weights: null.*data/weights"):
        parse_params(asked)
    params = parse_params(_set(asked, "encoder.weights", "data/weights/a.pt"))
    assert (params.encoder.weights, params.encoder.sha256) == ("data/weights/a.pt", None)


def test_own_slides_are_never_simulated(tree: Any) -> None:
    with pytest.raises(ParamsError, match="source: raw"):
        parse_params(_set(tree, "pretraining_dataset", "own"))


def test_a_file_that_is_missing_or_not_yaml_is_named(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"params\.yaml: cannot be read"):
        load_params(tmp_path / "params.yaml")
    (tmp_path / "broken.yaml").write_text("a: [1\nb: }")
    with pytest.raises(ParamsError, match=r"broken\.yaml, line 2: not YAML") as caught:
        load_params(tmp_path / "broken.yaml")
    assert "\n" not in str(caught.value)


SCALARS = [
    *("010", "08", "0o10", "0x10", "0b11", "1_000", "1__0", "+1", "-0", "12:30", "1:2:3", "00", "-010"),
    *(
        "1e-4",
        "1E4",
        "+1e-4",
        "1.e3",
        ".5",
        "1.",
        "1e400",
        ".inf",
        "-.Inf",
        ".nan",
        ".NaN",
        "1e",
        "0.1.2",
        "1,5",
    ),
    *(
        "yes",
        "no",
        "on",
        "off",
        "y",
        "n",
        "True",
        "TRUE",
        "tRUE",
        "false",
        "~",
        "null",
        "NULL",
        "",
        "'010'",
        '"1"',
    ),
    *(
        "2020-01-01",
        "2020-01-01T10:00:00Z",
        "rsp",
        "a b",
        "é",
        "[0, 010]",
        "{a: 010}",
        "!",
        "=x",
        "0.10",
        "1e5 ",
    ),
]


@pytest.mark.parametrize("scalar", SCALARS)
def test_a_value_is_read_as_dvc_reads_it(scalar: str, tmp_path: Path, dvc_yaml: Any) -> None:
    text = f"key: {scalar}\n"
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8")
    if scalar == "!":  # a tag: DVC reads it, and we say that we do not
        with pytest.raises(ParamsError, match="tags"):
            read_tree(path)
        return
    result: Any = read_tree(path)
    assert repr(result) == repr(dvc_yaml.parse_yaml(text, str(path)))


def test_the_committed_files_are_read_as_dvc_reads_them(root: Path, dvc_yaml: Any) -> None:
    for name in ("params.yaml", "params/paper.yaml"):
        assert read_tree(root / name) == dvc_yaml.load_yaml(str(root / name))


def test_a_number_with_a_leading_zero_is_the_decimal_one_that_dvc_records(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text((root / "params.yaml").read_text().replace("n_aug: 7", "n_aug: 010"))
    assert load_params(path).n_aug == 10


LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40))
HOSTILE: dict[str, tuple[str | bytes, str]] = {
    "a key twice": (
        "training_seeds: [0]\nmu: 1\ntraining_seeds: [1]\n",
        'line 3: not YAML that DVC reads: found duplicate key "training_seeds"',
    ),
    "a key twice in a section": ("a:\n  b: 1\n  b: 2\n", "line 3"),
    "billion laughs": (LAUGHS, "line 12: more than 10000 values, aliases written out"),
    "an alias to nothing": ("a: [1]\nb: *a\n", "line 2: the alias *a refers to itself or to nothing"),
    "an alias to itself": ("a: 1\nb: &b [*b]\n", "line 2: the alias *b refers to itself or to nothing"),
    "a ladder of aliases": (
        "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 999)),
        "nested deeper",
    ),
    "a merge key": ("a:\n  <<: {b: 1}\n", "line 2: merge keys"),
    "a tag that would run code": ("a: !!python/object/apply:os.system [ls]\n", "line 1: tags"),
    "a tag of ours": ("a: 1\nb: !seconds 1\n", "line 2: tags"),
    "brackets": ("a: " + "[" * 100_000, "nested deeper than 20"),
    "braces": ("{a: " * 5_000, "nested deeper than 20"),
    "sections": ("".join(" " * i + "a:\n" for i in range(500)), "nested deeper than 20"),
    "two documents": ("a: 1\n---\nb: 1\n", "line 2: not YAML"),
    "a tab": ("a:\n\tb: 1\n", "line 2: not YAML"),
    "a control character": ("a: \x07\n", "not YAML"),
    "latin-1": ("a: 1\nb: é\n".encode("latin-1"), "not UTF-8 (byte 0xe9 in line 2)"),
    "utf-16": ("a: 1\n".encode("utf-16"), "not UTF-8 (byte 0xff in line 1)"),
    "half a megabyte": (b"#" * 2**19, "524288 bytes, more than the limit of 262144"),
    "a number of 5000 digits": ("a: " + "9" * 5000, "not YAML that DVC reads: Exceeds the limit"),
    "a date that is none": ("a: 2020-99-99", "month must be in 1..12"),
    "nothing": ("", "expected a section with keys, got nothing"),
    "comments alone": ("# training_seeds: [0]\n", "expected a section with keys, got nothing"),
    "a list at the top": ("- seeds\n", "expected a section with keys, got ['seeds']"),
    "a list as a key": ("? [1, 2]\n: 3\n", "(1, 2): unknown key"),
    "a long key": ("k" * 1000 + ": 3\n", "k: unknown key"),
    "NUL": ("a: \x00", "not YAML"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_one_short_line_with_its_name(kind: str, tmp_path: Path) -> None:
    content, expected = HOSTILE[kind]
    path = tmp_path / "params.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ParamsError) as caught:
        load_params(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert expected in message
    assert "\n" not in message
    assert len(message) < 700


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), os.mkdir])
def test_what_is_no_file_is_refused_and_never_waited_for(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "params.yaml"
    make(path)
    with pytest.raises(ParamsError, match="not a file"):
        load_params(path)


def test_what_a_library_wrote_with_aliases_is_read_as_dvc_reads_it(
    tree: Any, tmp_path: Path, dvc_yaml: Any
) -> None:
    path = tmp_path / "params.yaml"
    counts = {"num_tumor": 16, "num_normal": 16}
    tree["labels"]["camelyon16"] |= dict.fromkeys(("train", "separate_validation", "test"), counts)
    path.write_text(yaml.safe_dump(tree))
    assert "&id001" in path.read_text()
    assert read_tree(path) == dvc_yaml.load_yaml(str(path)) == tree
    assert load_params(path) == parse_params(tree)


def test_a_byte_order_mark_is_no_part_of_a_key(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + (root / "params.yaml").read_bytes())
    assert load_params(path) == load_params(root / "params.yaml")


@pytest.mark.parametrize(
    "value", [float("inf"), 10**400, "0x" + "f" * 9, "1_0", " 1 ", "infinity", [[[[1] * 99] * 99] * 99]]
)
def test_what_is_no_finite_number_is_refused_in_one_short_line(tree: Any, value: object) -> None:
    with pytest.raises(ParamsError, match=r"^pretrain\.rsp\.lr: expected") as caught:
        parse_params(_set(tree, "pretrain.rsp.lr", value))
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("value", [-1, 10**20, 2**32, 0.5])
def test_a_seed_is_a_whole_number_that_generators_take(tree: Any, value: object) -> None:
    for key in ("training_seeds", "index.seed"):
        with pytest.raises(ParamsError, match="an integer"):
            parse_params(_set(tree, key, [value] if key == "training_seeds" else value))


def test_a_run_that_params_do_not_ask_for_is_refused(tree: Any) -> None:
    params = parse_params(tree | {"pretraining_methods": ["rsp"], "training_seeds": [0, 3]})
    assert check_run(params, method="rsp", encoder=0, seed=3) == {"encoder": 0}
    assert check_run(params, method="rsp", encoder=None) == {"encoder": 0}
    with pytest.raises(ParamsError, match=r"--method: 'moco' is not in `pretraining_methods` \['rsp'\]"):
        check_run(params, method="moco", encoder=0, seed=0)
    for seed in (1, -1, 10**20):
        with pytest.raises(ParamsError, match=rf"--seed: {seed} is not in `training_seeds` \[0, 3\]"):
            check_run(params, method="rsp", encoder=0, seed=seed)
    with pytest.raises(
        ParamsError,
        match=r"--pretraining-seed: 2 is not in `pretraining_seeds` \[0\]",
    ):
        check_run(params, method="rsp", encoder=2, seed=0)
    several = parse_params(_set(tree | {"pretraining_methods": ["rsp"]}, "pretraining_seeds", [0, 4]))
    with pytest.raises(
        ParamsError, match=r"--pretraining-seed: missing\. Fix: give one of `pretraining_seeds` \[0, 4\]"
    ):
        check_run(several, method="rsp", encoder=None)


def test_a_seed_of_thousands_of_digits_is_refused_by_its_key(tree: Any) -> None:
    with pytest.raises(ParamsError, match=r"^index\.seed: .* got a number of thousands of digits"):
        parse_params(_set(tree, "index.seed", 10**5000))


def test_values_of_a_stage_are_those_of_the_file_by_their_names(root: Path) -> None:
    params, tree = load_params(root / "params.yaml"), read_tree(root / "params.yaml")
    names = (
        "alpha",
        "corpora.${pretraining_dataset}",
        "labels.${dataset}",
        "pretrain.${item.method}",
        "evaluate.batch_size",
    )
    assert json.loads(json.dumps(selected(params, names, "moco"))) == {
        "alpha": tree["alpha"],
        f"corpora.{tree['pretraining_dataset']}": tree["corpora"][tree["pretraining_dataset"]],
        f"labels.{tree['dataset']}": tree["labels"][tree["dataset"]],
        "pretrain.moco": tree["pretrain"]["moco"],
        "evaluate.batch_size": tree["evaluate"]["batch_size"],
    }


@pytest.mark.parametrize("name", ["params.yaml", "params/paper.yaml"])
def test_params_as_a_tree_are_those_of_the_file_in_its_order(root: Path, name: str) -> None:
    path = root / name
    assert json.dumps(as_tree(load_params(path))) == json.dumps(read_tree(path))


def test_methods_that_are_not_in_use_need_no_section(tree: Any) -> None:
    sections = tree["pretrain"]
    del sections["vae"]
    assert list(parse_params(tree).pretrain.methods) == [
        "random",
        "pretrained",
        "moco",
        "rsp",
        "rsp_moco",
        "dino",
    ]
    del sections["rsp_moco"]
    with pytest.raises(ParamsError, match=r"^pretrain\.rsp_moco: missing key\. Fix: add this section$"):
        parse_params(tree)
