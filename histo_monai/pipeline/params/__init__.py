"""Params of an experiment: params.yaml -> frozen dataclasses without defaults.

An unknown or missing key, a wrong type or a value out of range is a `ParamsError` of one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from histo_monai.data.readers.registry import DATASETS
from histo_monai.models.encoders.published import PUBLISHED
from histo_monai.pipeline.params.file import read_tree
from histo_monai.pipeline.params.renamed import RenamedKeysError, check_renamed
from histo_monai.pipeline.params.sections import Params
from histo_monai.pretraining import PRETEXTS
from histo_monai.semisupervised import METHODS
from histo_monai.utils.settings.reader import ParamsError, read_section
from histo_monai.utils.settings.recipe import LABEL_KINDS

__all__ = ["Params", "ParamsError", "check_run", "load_params", "parse_params"]


def load_params(path: Path) -> Params:
    """Params from a file.

    Raises:
        ParamsError: the file is missing or no YAML; a key is unknown, missing, of a wrong type or out of range.
    """
    tree = read_tree(path)
    try:
        return parse_params(tree)
    except RenamedKeysError as error:
        raise RenamedKeysError([f"{path}: {line}" for line in error.lines]) from None
    except ParamsError as error:
        raise ParamsError(f"{path}: {error}") from None


def needs_fold_models(params: Params, method: str) -> bool:
    """Whether models of a pretraining method may map slides, so that fold models must map training slides.

    Params that `finetune` and `consistency` depend on decide: which students and encoders there are may change after
    these stages have run. An empty list in `slide_level` saves the fold models.
    """
    asked = params.slide_level
    is_asked = method in asked.pretraining_methods and bool(asked.semisupervised_methods)
    return is_asked and params.dataset in params.heatmap.datasets


def check_run(
    params: Params, *, method: str, encoder: int | None, student: str | None = "", seed: int | None = None
) -> dict[str, str | int]:
    """Seed and student of a run; refuse runs that params.yaml does not name, as no later stage would use them.

    Args:
        encoder: pretraining seed; None for the only one.
        student: semi-supervised method; empty for a stage without one, None for the only one.
        seed: training seed; None for a pretraining.

    Returns:
        {"encoder": seed, "student": name}; without "student" for a stage without one.

    Raises:
        ParamsError: params.yaml does not name a value, or names several and none is given.
    """
    if method not in params.pretraining_methods:
        known = ", ".join(PRETEXTS)
        given = list(params.pretraining_methods)
        raise ParamsError(
            f"--method: {method!r} is not in `pretraining_methods` {given} of params.yaml. Fix: add it there "
            f"(known: {known})"
        )
    if seed is not None and seed not in params.training_seeds:
        raise ParamsError(
            f"--seed: {seed} is not in `training_seeds` {list(params.training_seeds)} of params.yaml. Fix: add it "
            f"there (0 to 2**32 - 1)"
        )
    encoders = list(params.pretraining_seeds)
    if encoder is None and len(encoders) > 1:
        raise ParamsError(f"--pretraining-seed: missing. Fix: give one of `pretraining_seeds` {encoders}")
    if encoder is not None and encoder not in encoders:
        raise ParamsError(
            f"--pretraining-seed: {encoder} is not in `pretraining_seeds` {encoders} of params.yaml. Fix: add it "
            f"there (0 to 2**32 - 1)"
        )
    of_encoder: dict[str, str | int] = {"encoder": encoders[0] if encoder is None else encoder}
    if student == "":
        return of_encoder
    if student is None and len(params.semisupervised_methods) > 1:
        raise ParamsError(
            f"--student: missing. Fix: give one of `semisupervised_methods` {list(params.semisupervised_methods)}"
        )
    if student is not None and student not in params.semisupervised_methods:
        raise ParamsError(
            f"--student: {student!r} is not in `semisupervised_methods` "
            f"{list(params.semisupervised_methods)} of params.yaml. Fix: add it there "
            f"(known: {', '.join(METHODS)})"
        )
    return of_encoder | {"student": student or params.semisupervised_methods[0]}


def parse_params(tree: object) -> Params:
    """Params from a tree of YAML values.

    Raises:
        ParamsError: a key is unknown, missing, of a wrong type or out of range.
    """
    check_renamed(tree)
    params: Params = read_section(Params, tree, "")
    _check_datasets(params)
    for student in params.semisupervised_methods:
        if student not in params.consistency.methods:
            raise ParamsError(
                f"consistency.methods.{student}: missing key. Fix: add its settings, or remove it from "
                f"`semisupervised_methods`"
            )
    for name in params.pretraining_methods:
        if name not in params.pretrain.methods:
            raise ParamsError(f"pretrain.{name}: missing key. Fix: add this section")
        params.pretrain.methods[name].check(
            corpus=params.pretraining_dataset,
            num_train=params.corpus_section.num_train,
            weights=params.encoder.weights,
        )
    _check_encoder(params)
    _check_mode(params)
    _check_recipes(params)
    return params


def _check_datasets(params: Params) -> None:
    """Refuse params without the sections of the datasets in use."""
    for name in (params.dataset, params.pretraining_dataset):
        if params.source == "phantom" and DATASETS[name].phantom is None:
            simulated = ", ".join(each for each, part in DATASETS.items() if part.phantom is not None)
            raise ParamsError(f"source: 'phantom' simulates {simulated}, not {name!r}. Fix: set source: raw")
    sections: dict[str, Mapping[str, Any]] = {
        "labels": params.labels,
    }
    if DATASETS[params.dataset].MapSettings is not None:
        sections["heatmap"] = params.heatmap.datasets
    if DATASETS[params.dataset].CorpusSettings is not None:
        sections["corpora"] = params.corpora
    needed = [(where, params.dataset, held) for where, held in sections.items()]
    for where, name, held in (*needed, ("corpora", params.pretraining_dataset, params.corpora)):
        if name not in held:
            raise ParamsError(f"{where}.{name}: missing key. Fix: add this section")
    for stage, section in (("finetune", params.finetune.paper), ("consistency", params.consistency.paper)):
        for key in section.without(params.dataset):
            raise ParamsError(f"{stage}.paper.{key}.{params.dataset}: missing key. Fix: add a value")


def _check_mode(params: Params) -> None:
    """Refuse students and depths that do not work with the mode of the fine-tuning."""
    mode = params.finetune.mode
    depths = [depth for depth in params.features.depth if depth != 0]
    if not depths:
        raise ParamsError(
            "features.depth: color (0) alone. Fix: add null, the whole encoder, or a number of stages"
        )
    if mode != "head" and len(depths) > 1:
        raise ParamsError(
            f"features.depth: several depths, which finetune.mode: {mode} does not take. Fix: set finetune.mode: head, "
            "or one depth"
        )
    for student in params.semisupervised_methods:
        if mode not in params.consistency.methods[student].finetune_modes:
            known = [name for name in METHODS if mode in METHODS.settings(name).finetune_modes]
            raise ParamsError(
                f"semisupervised_methods: {student!r} does not work with finetune.mode: {mode}. Fix: name any of "
                f"{', '.join(known)}"
            )


def _check_recipes(params: Params) -> None:
    for kind in LABEL_KINDS:
        recipe = params.consistency.recipe.of(kind)
        if recipe.match_class_proportions and not recipe.batchnorm_patches:
            raise ParamsError(
                "consistency.recipe.match_class_proportions: true needs batchnorm_patches above 0. Fix: set "
                "batchnorm_patches: 1024, or match_class_proportions: false"
            )
        between = [weight for weight in recipe.interpolation_weights if 0 < weight < 1]
        if between and not recipe.batchnorm_patches:
            raise ParamsError(
                f"consistency.recipe.interpolation_weights: {between[0]:g}, which needs batchnorm_patches above 0. "
                "Fix: set batchnorm_patches: 1024, or interpolation_weights: [0.0]"
            )


def _check_encoder(params: Params) -> None:
    encoder = params.encoder
    for key in ("sha256", "license"):
        if encoder.weights is None and getattr(encoder, key) is not None:
            raise ParamsError(
                f"encoder.{key}: set, but encoder.weights is null. Fix: set encoder.weights, or null here"
            )
    if (encoder.mean is None) != (encoder.std is None):
        raise ParamsError("encoder.mean: only one of mean and std is set. Fix: set both, or null for both")
    known = PUBLISHED.get(encoder.name)
    if known and encoder.side and not encoder.arguments and encoder.side % known.multiple_px:
        raise ParamsError(
            f"encoder.side: {encoder.side}, but {encoder.name!r} takes multiples of {known.multiple_px} px. "
            f"Fix: set null ({known.side_px} px), or a multiple"
        )
