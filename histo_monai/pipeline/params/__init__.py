"""params.yaml -> frozen dataclasses. There are no defaults here: what a run used is what the file says.

An unknown or missing key, a wrong type or a number out of range is a `ParamsError` of one line that names the key, the
value and what was expected.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from histo_monai.data.readers.registry import DATASETS
from histo_monai.pipeline.params.file import read_tree
from histo_monai.pipeline.params.renamed import RenamedKeysError, check_renamed
from histo_monai.pipeline.params.sections import Params
from histo_monai.pretraining import PRETEXTS
from histo_monai.semisupervised import METHODS
from histo_monai.utils.settings.reader import ParamsError, read_section
from histo_monai.utils.settings.recipe import LABEL_KINDS

__all__ = ["Params", "ParamsError", "check_run", "load_params", "parse_params"]


def load_params(path: Path) -> Params:
    """Read and check a params file.

    Raises:
        ParamsError: the file is missing or is not YAML, or a key is unknown, missing, of a wrong type or out of range.
    """
    tree = read_tree(path)
    try:
        return parse_params(tree)
    except RenamedKeysError as error:
        raise RenamedKeysError([f"{path}: {line}" for line in error.lines]) from None
    except ParamsError as error:
        raise ParamsError(f"{path}: {error}") from None


def check_run(
    params: Params, *, method: str, encoder: int | None, student: str | None = "", seed: int | None = None
) -> dict[str, str | int]:
    """Refuse to run what params do not ask for: nothing that comes after it would be run, or be recorded.

    Args:
        params: of the experiment.
        method: of the run.
        encoder: seed of its pretraining; None for the only one there is.
        student: of the run; empty for a stage that knows none, None for the only one there is.
        seed: of the run; None for a pretraining, which serves all seeds.

    Returns:
        {"encoder": its seed, "student": its name}; without the latter for a stage that knows none.

    Raises:
        ParamsError: the method is not in `pretraining_methods`, the encoder not in `pretraining_seeds`, the student not
            in `semisupervised_methods` or the seed not in `training_seeds`; or no encoder or student is given, and
            there are several.
    """
    if method not in params.pretraining_methods:
        known = ", ".join(PRETEXTS)
        given = list(params.pretraining_methods)
        raise ParamsError(
            f"--method is {method!r}, but `pretraining_methods` in params.yaml are {given}; add it there (known: "
            f"{known})"
        )
    if seed is not None and seed not in params.training_seeds:
        raise ParamsError(
            f"--seed is {seed}, but `training_seeds` in params.yaml are {list(params.training_seeds)}; add it there (0 "
            f"to 2**32 - 1)"
        )
    encoders = list(params.pretraining_seeds)
    if encoder is None and len(encoders) > 1:
        raise ParamsError(f"--pretraining-seed is needed: `pretraining_seeds` in params.yaml are {encoders}")
    if encoder is not None and encoder not in encoders:
        raise ParamsError(
            f"--pretraining-seed is {encoder}, but `pretraining_seeds` in params.yaml are {encoders}; add it there (0 "
            f"to 2**32 - 1)"
        )
    of_encoder: dict[str, str | int] = {"encoder": encoders[0] if encoder is None else encoder}
    if student == "":
        return of_encoder
    if student is None and len(params.semisupervised_methods) > 1:
        raise ParamsError(
            f"--student is needed: `semisupervised_methods` in params.yaml are {list(params.semisupervised_methods)}"
        )
    if student is not None and student not in params.semisupervised_methods:
        raise ParamsError(
            f"--student is {student!r}, but `semisupervised_methods` in params.yaml are "
            f"{list(params.semisupervised_methods)}; add it there "
            f"(known: {', '.join(METHODS)})"
        )
    return of_encoder | {"student": student or params.semisupervised_methods[0]}


def parse_params(tree: object) -> Params:
    """Check a tree of plain values, as YAML gives it, and freeze it.

    Raises:
        ParamsError: see `load_params`.
    """
    check_renamed(tree)
    params: Params = read_section(Params, tree, "")
    _check_datasets(params)
    for student in params.semisupervised_methods:
        if student not in params.consistency.methods:
            raise ParamsError(
                f"consistency.methods.{student}: missing key; expected its settings, as `semisupervised_methods` names "
                f"it"
            )
    for name in params.pretraining_methods:
        if name not in params.pretrain.methods:
            raise ParamsError(f"pretrain.{name}: missing key; expected a section")
        params.pretrain.methods[name].check(
            corpus=params.pretraining_dataset,
            num_train=params.corpus_section.num_train,
            weights=params.encoder.weights,
        )
    _check_encoder(params)
    _check_recipes(params)
    return params


def _check_datasets(params: Params) -> None:
    """Sections of the dataset and of the corpus in use are there; of others they need not be."""
    for name in (params.dataset, params.pretraining_dataset):
        if params.source == "phantom" and DATASETS[name].phantom is None:
            simulated = ", ".join(each for each, part in DATASETS.items() if part.phantom is not None)
            raise ParamsError(
                f"source: 'phantom' simulates {simulated}, not {name!r}; set source: raw for your slides"
            )
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
            raise ParamsError(f"{where}.{name}: missing key; expected a section")
    for stage, section in (("finetune", params.finetune.paper), ("consistency", params.consistency.paper)):
        for key in section.without(params.dataset):
            raise ParamsError(f"{stage}.paper.{key}.{params.dataset}: missing key; expected a value")


def _check_recipes(params: Params) -> None:
    for kind in LABEL_KINDS:
        recipe = params.consistency.recipe.of(kind)
        if recipe.match_class_proportions and not recipe.batchnorm_patches:
            raise ParamsError(
                "consistency.recipe.match_class_proportions: true, and there is no patch to take shares of; set "
                "batchnorm_patches: 1024 beside it, or match_class_proportions: false"
            )
        between = [share for share in recipe.interpolation_weights if 0 < share < 1]
        if between and not recipe.batchnorm_patches:
            raise ParamsError(
                f"consistency.recipe.interpolation_weights: {between[0]:g}, and there is no patch to take "
                "statistics from of weights between two models; set batchnorm_patches: 1024 beside it, or "
                "interpolation_weights: [0.0]"
            )


def _check_encoder(params: Params) -> None:
    encoder = params.encoder
    for key in ("sha256", "license"):
        if encoder.weights is None and getattr(encoder, key) is not None:
            raise ParamsError(
                f"encoder.{key}: given, but encoder.weights is null; name the file, or set null"
            )
    if (encoder.mean is None) != (encoder.std is None):
        raise ParamsError("encoder.mean: expected numbers beside those of encoder.std, or null beside null")
