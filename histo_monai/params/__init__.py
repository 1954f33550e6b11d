"""params.yaml -> frozen dataclasses. There are no defaults here: what a run used is what the file says.

An unknown or missing key, a wrong type or a number out of range is a `ParamsError` of one line that names the key, the
value and what was expected.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from histo_monai.datasets.registry import DATASETS
from histo_monai.params.file import read_tree
from histo_monai.params.sections import Params
from histo_monai.settings.reader import ParamsError, read_section
from histo_monai.settings.rules import Method

__all__ = ["Method", "Params", "ParamsError", "check_run", "load_params", "parse_params"]


def load_params(path: Path) -> Params:
    """Read and check a params file.

    Raises:
        ParamsError: the file is missing or is not YAML, or a key is unknown, missing, of a wrong type or out of range.
    """
    tree = read_tree(path)
    try:
        return parse_params(tree)
    except ParamsError as error:
        raise ParamsError(f"{path}: {error}") from None


def check_run(params: Params, *, method: str, seed: int | None = None) -> None:
    """Refuse to run what params do not ask for: nothing that comes after it would be run, or be recorded.

    Args:
        params: of the experiment.
        method: of the run.
        seed: of the run; None for a pretraining, which serves all seeds.

    Raises:
        ParamsError: the method is not in `methods`, or the seed not in `seeds`.
    """
    if method not in params.methods:
        known = ", ".join(typing.get_args(Method))
        given = list(params.methods)
        raise ParamsError(
            f"--method is {method!r}, but `methods` in params.yaml are {given}; add it there (known: {known})"
        )
    if seed is not None and seed not in params.seeds:
        raise ParamsError(
            f"--seed is {seed}, but `seeds` in params.yaml are {list(params.seeds)}; add it there (0 to 2**32 - 1)"
        )


def parse_params(tree: object) -> Params:
    """Check a tree of plain values, as YAML gives it, and freeze it.

    Raises:
        ParamsError: see `load_params`.
    """
    params: Params = read_section(Params, tree, "")
    _check_datasets(params)
    method = params.consistency.method
    if method not in params.consistency.methods:
        raise ParamsError(
            f"consistency.methods.{method}: missing key; expected the settings of consistency.method"
        )
    _check_encoder(params)
    queue, samples = params.pretrain.moco.queue_size, params.corpus_section.num_train
    if "moco" in params.methods and queue > samples:
        raise ParamsError(
            f"pretrain.moco.queue_size: expected at most corpora.{params.corpus}.num_train, {samples}, so that one "
            f"epoch fills the queue, got {queue}"
        )
    return params


def _check_datasets(params: Params) -> None:
    """Sections of the dataset and of the corpus in use are there; of others they need not be."""
    for name in (params.dataset, params.corpus):
        if params.source == "phantom" and DATASETS[name].phantom is None:
            simulated = ", ".join(each for each, part in DATASETS.items() if part.phantom is not None)
            raise ParamsError(
                f"source: 'phantom' simulates {simulated}, not {name!r}; set source: raw for your slides"
            )
    sections: dict[str, Mapping[str, Any]] = {
        "labels": params.labels,
        "finetune": params.finetune,
        "consistency": params.consistency.datasets,
    }
    if DATASETS[params.dataset].MapSettings is not None:
        sections["heatmap"] = params.heatmap.datasets
    if DATASETS[params.dataset].CorpusSettings is not None:
        sections["corpora"] = params.corpora
    needed = [(where, params.dataset, held) for where, held in sections.items()]
    for where, name, held in (*needed, ("corpora", params.corpus, params.corpora)):
        if name not in held:
            raise ParamsError(f"{where}.{name}: missing key; expected a section")


def _check_encoder(params: Params) -> None:
    encoder = params.encoder
    if "pretrained" in params.methods and encoder.weights is None:
        raise ParamsError(
            "encoder.weights: null, but `methods` holds pretrained; put a file into data/weights and name it here, "
            "with its sha256"
        )
    for key in ("sha256", "license"):
        if encoder.weights is None and getattr(encoder, key) is not None:
            raise ParamsError(
                f"encoder.{key}: given, but encoder.weights is null; name the file, or set null"
            )
    if (encoder.mean is None) != (encoder.std is None):
        raise ParamsError("encoder.mean: expected numbers beside those of encoder.std, or null beside null")
