"""params.yaml -> frozen dataclasses. There are no defaults here: what a run used is what the file says.

An unknown or missing key, a wrong type or a number out of range is a `ParamsError` of one line that names the key, the
value and what was expected.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from histo_monai.params.reader import ParamsError, read_section
from histo_monai.params.rules import Dataset, Method
from histo_monai.params.sections import (
    BreastPathQLabels,
    Camelyon16Labels,
    KatherLabels,
    OwnLabels,
    Params,
    SlidesCorpus,
)

__all__ = [
    "BreastPathQLabels",
    "Camelyon16Labels",
    "Dataset",
    "KatherLabels",
    "Method",
    "OwnLabels",
    "Params",
    "ParamsError",
    "SlidesCorpus",
    "load_params",
    "parse_params",
]


def load_params(path: Path) -> Params:
    """Read and check a params file.

    Raises:
        ParamsError: the file is missing or is not YAML, or a key is unknown, missing, of a wrong type or out of range.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ParamsError(f"{path}: cannot be read ({error.strerror}); run from the project's root") from None
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ParamsError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    try:
        return parse_params(tree)
    except ParamsError as error:
        raise ParamsError(f"{path}: {error}") from None


def parse_params(tree: object) -> Params:
    """Check a tree of plain values, as YAML gives it, and freeze it.

    Raises:
        ParamsError: see `load_params`.
    """
    params: Params = read_section(Params, tree, "")
    if params.source == "phantom" and "own" in (params.dataset, params.corpus):
        raise ParamsError(
            "source: 'phantom' simulates the public datasets, not 'own'; set source: raw for your slides"
        )
    queue, samples = params.pretrain.moco.queue_size, params.corpus_section.num_train
    if "moco" in params.methods and queue > samples:
        raise ParamsError(
            f"pretrain.moco.queue_size: expected at most corpora.{params.corpus}.num_train, {samples}, so that one "
            f"epoch fills the queue, got {queue}"
        )
    return params
