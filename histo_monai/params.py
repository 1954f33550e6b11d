"""params.yaml -> frozen dataclasses. There are no defaults here: what a run used is what the file says.

An unknown or missing key, a wrong type or a number out of range is a `ParamsError` of one line that names the key, the
value and what was expected.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml

Dataset = Literal["breastpathq", "camelyon16", "kather", "own"]
Corpus = Literal["breastpathq", "camelyon16", "own"]
Method = Literal["random", "rsp"]


class ParamsError(ValueError):
    """A params file that cannot be used: one line that names the key and what it should hold."""


@dataclass(frozen=True)
class Range:
    """Closed range of a number; `exclusive_low` opens the lower end. Units stand in the field's name."""

    low: float
    high: float = float("inf")
    exclusive_low: bool = False

    def __contains__(self, value: float) -> bool:
        above = value > self.low if self.exclusive_low else value >= self.low
        return above and value <= self.high  # NaN fails both

    def __str__(self) -> str:
        left = "(" if self.exclusive_low else "["
        right = ")" if self.high == float("inf") else "]"
        return f"{left}{self.low:g}, {self.high:g}{right}"


@dataclass(frozen=True)
class Unique:
    """A list with at least one entry and none twice."""

    def __str__(self) -> str:
        return "a list with at least one entry and none twice"


@dataclass(frozen=True)
class Ascending:
    """Numbers, each larger than the one before; `length` of them, or any number."""

    length: int | None = None

    def __str__(self) -> str:
        count = {None: "numbers", 3: "three numbers"}[self.length]
        return f"{count}, each larger than the one before"


Count = Annotated[int, Range(1)]
CountOrZero = Annotated[int, Range(0)]
Seed = Annotated[int, Range(0, 2**32 - 1)]
Fraction = Annotated[float, Range(0.0, 1.0)]
Positive = Annotated[float, Range(0.0, exclusive_low=True)]
MicronsPerPixel = Annotated[float, Range(0.05, 64.0)]
Mpps = Annotated[tuple[MicronsPerPixel, ...], Ascending(3)]
Seeds = Annotated[tuple[Seed, ...], Unique()]
Milestones = Annotated[tuple[Annotated[int, Range(1)], ...], Ascending()]


@dataclass(frozen=True)
class SlidesCorpus:
    """A corpus to pretrain on: resolutions of a triple, and how many triples to draw from its slides."""

    mpps: Mpps
    num_train: Count
    num_validation: Count


@dataclass(frozen=True)
class Camelyon16Corpus(SlidesCorpus):
    """As `SlidesCorpus`; the first `num_normal` and `num_tumor` training slides, by number, are the corpus."""

    num_normal: CountOrZero
    num_tumor: CountOrZero


@dataclass(frozen=True)
class Corpora:
    """One section for each corpus; `corpus` at the top of the file names the one in use."""

    breastpathq: SlidesCorpus
    camelyon16: Camelyon16Corpus
    own: SlidesCorpus


@dataclass(frozen=True)
class RaterColumn:
    """Where the scores of one pathologist stand: a csv in the test folder, and its column."""

    file: str
    column: str


@dataclass(frozen=True)
class BreastPathQLabels:
    """BreastPathQ: the columns of its test labels, which differ between releases."""

    slide_column: str
    region_column: str
    rater_a: RaterColumn
    rater_b: RaterColumn


@dataclass(frozen=True)
class PatchCounts:
    """How many patches to draw inside and outside the outlines."""

    num_tumor: CountOrZero
    num_normal: CountOrZero


@dataclass(frozen=True)
class Camelyon16Labels:
    """Camelyon16: patches drawn from slides; a tumour patch has `min_tumor_fraction` of its field inside at least."""

    mpp: MicronsPerPixel
    min_tumor_fraction: Annotated[float, Range(0.0, 1.0, exclusive_low=True)]
    train: PatchCounts
    validation: PatchCounts
    test: PatchCounts


@dataclass(frozen=True)
class KatherLabels:
    """Kather: which of the two published training folders."""

    folder: Literal["NCT-CRC-HE-100K", "NCT-CRC-HE-100K-NONORM"]


@dataclass(frozen=True)
class OwnLabels:
    """Your own: whether validation may be drawn from the training patients, where there is but one."""

    validation_within_patients: bool


@dataclass(frozen=True)
class Labels:
    """One section for each dataset; `dataset` at the top of the file names the one in use."""

    breastpathq: BreastPathQLabels
    camelyon16: Camelyon16Labels
    kather: KatherLabels
    own: OwnLabels


@dataclass(frozen=True)
class PhantomParams:
    """The simulated cohort: how many slides and patches, how large, from which seed."""

    seed: Seed
    num_slides: Count
    num_test_slides: CountOrZero
    num_patches: Count
    slide_side_px: Annotated[int, Range(256)]
    slide_mpp: MicronsPerPixel


@dataclass(frozen=True)
class IndexParams:
    """Slides -> tables: the split, and where on the tissue centers may lie."""

    seed: Seed
    validation_fraction: Annotated[float, Range(0.0, 0.9, exclusive_low=True)]
    skip_bad_slides: bool
    tissue_mpp: Annotated[float, Range(1.0, 64.0)]
    min_tissue_fraction: Annotated[float, Range(0.0, 1.0, exclusive_low=True)]


@dataclass(frozen=True)
class AugmentationParams:
    """How likely each operation of the pretraining augmentation is (paper: section 1 of the method)."""

    prob: Fraction


@dataclass(frozen=True)
class LookaheadParams:
    """Lookahead (Zhang et al. 2019): every `steps` iterations the slow weights move by `slow_step`."""

    steps: Count
    slow_step: Annotated[float, Range(0.0, 1.0, exclusive_low=True)]


@dataclass(frozen=True)
class RSPParams:
    """Optimiser of resolution sequence prediction: SGD with Nesterov momentum inside Lookahead."""

    epochs: Count
    batch_size: Annotated[int, Range(2)]
    lr: Positive
    momentum: Annotated[float, Range(0.0, 0.999, exclusive_low=True)]
    weight_decay: Annotated[float, Range(0.0)]
    lookahead: LookaheadParams


@dataclass(frozen=True)
class RandomParams:
    """Nothing to set: the encoder stays as it is initialised."""


@dataclass(frozen=True)
class PretrainParams:
    """Self-supervised pretraining."""

    seed: Seed
    augmentation: AugmentationParams
    random: RandomParams
    rsp: RSPParams


@dataclass(frozen=True)
class TrainingParams:
    """A training with labels. "sgd" has Nesterov momentum 0.9, "adam" betas 0.9 and 0.999; lr x 0.1 at `milestones`."""

    epochs: Count
    batch_size: Count
    optimizer: Literal["adam", "sgd"]
    lr: Positive
    weight_decay: Annotated[float, Range(0.0)]
    milestones: Milestones


@dataclass(frozen=True)
class FinetuneParams:
    """Supervised fine-tuning: one section for each dataset."""

    breastpathq: TrainingParams
    camelyon16: TrainingParams
    kather: TrainingParams
    own: TrainingParams


@dataclass(frozen=True)
class ConsistencyParams:
    """Teacher-student training: weight of the consistency loss, confidence asked of a pseudo label, and the sections.

    `batch_size` of a section counts labeled images; mu times as many unlabeled ones come with them.
    """

    weight: Annotated[float, Range(0.0)]
    threshold: Annotated[float, Range(0.0, 0.999)]
    breastpathq: TrainingParams
    camelyon16: TrainingParams
    kather: TrainingParams
    own: TrainingParams


@dataclass(frozen=True)
class EvaluateParams:
    """Seed of the bootstrap, and how many images to predict at a time."""

    seed: Seed
    batch_size: Count


@dataclass(frozen=True)
class Params:
    """One experiment."""

    source: Literal["phantom", "raw"]
    dataset: Dataset
    corpus: Corpus
    methods: Annotated[tuple[Method, ...], Unique()]
    seeds: Seeds
    alpha: Annotated[float, Range(0.0, 1.0, exclusive_low=True)]
    mu: Count
    n_aug: Annotated[int, Range(1, 10)]
    patch_px: Annotated[int, Range(32, 2048)]
    corpora: Corpora
    labels: Labels
    phantom: PhantomParams
    index: IndexParams
    pretrain: PretrainParams
    finetune: FinetuneParams
    consistency: ConsistencyParams
    evaluate: EvaluateParams

    @property
    def corpus_section(self) -> SlidesCorpus:
        """The section of `corpora` that `corpus` names."""
        return getattr(self.corpora, self.corpus)

    @property
    def labels_section(self) -> BreastPathQLabels | Camelyon16Labels | KatherLabels | OwnLabels:
        """The section of `labels` that `dataset` names."""
        return getattr(self.labels, self.dataset)

    @property
    def finetune_section(self) -> TrainingParams:
        """The section of `finetune` that `dataset` names."""
        return getattr(self.finetune, self.dataset)

    @property
    def consistency_section(self) -> TrainingParams:
        """The section of `consistency` that `dataset` names."""
        return getattr(self.consistency, self.dataset)


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
    params: Params = _section(Params, tree, "")
    if params.source == "phantom" and "own" in (params.dataset, params.corpus):
        raise ParamsError(
            "source: 'phantom' simulates the public datasets, not 'own'; set source: raw for your slides"
        )
    return params


def _section(cls: Any, tree: object, where: str) -> Any:
    name = where or "the file"
    if not isinstance(tree, Mapping):
        raise ParamsError(f"{name}: expected a section with keys, got {_show(tree)}")
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = [field.name for field in dataclasses.fields(cls)]
    for key in tree:
        if key not in fields:
            close = difflib.get_close_matches(str(key), fields, n=1)
            advice = f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(fields)}"
            raise ParamsError(f"{_join(where, key)}: unknown key; {advice}")
    for key in fields:
        if key not in tree:
            raise ParamsError(f"{_join(where, key)}: missing key; expected {_describe(hints[key])}")
    return cls(**{key: _value(hints[key], tree[key], _join(where, key)) for key in fields})


def _value(hint: Any, value: Any, where: str) -> Any:
    rules: tuple[Any, ...] = ()
    expected = _describe(hint)
    if typing.get_origin(hint) is Annotated:
        hint, *rest = typing.get_args(hint)
        rules = tuple(rest)
    if dataclasses.is_dataclass(hint):
        return _section(hint, value, where)
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise ParamsError(f"{where}: expected {expected}, got {_show(value)}")
        value = tuple(_value(typing.get_args(hint)[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    elif typing.get_origin(hint) is Literal:
        if value not in typing.get_args(hint):
            raise ParamsError(f"{where}: expected {expected}, got {_show(value)}")
    else:
        value = _scalar(hint, value, where, expected)
    for rule in rules:
        if not _holds(rule, value):
            raise ParamsError(f"{where}: expected {expected}, got {_show(value)}")
    return value


def _scalar(hint: type, value: Any, where: str, expected: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if hint is float and isinstance(value, str):
        # YAML 1.1 reads 1e-4 as a string: the field writes it so, and DVC hands it over so.
        try:
            value = float(value)
        except ValueError:
            raise ParamsError(f"{where}: expected {expected}, got {_show(value)}") from None
    if type(value) is not hint:
        raise ParamsError(f"{where}: expected {expected}, got {_show(value)}")
    return value


def _holds(rule: object, value: Any) -> bool:
    if isinstance(rule, Range):
        return value in rule
    if isinstance(rule, Unique):
        return len(value) > 0 and len(set(value)) == len(value)
    if isinstance(rule, Ascending):
        return len(value) == (rule.length or len(value)) and all(a < b for a, b in itertools.pairwise(value))
    raise TypeError(f"no such rule: {rule!r}")


def _describe(hint: Any) -> str:
    if typing.get_origin(hint) is Annotated:
        inner, *rules = typing.get_args(hint)
        if isinstance(rules[0], Range):
            return f"{_describe(inner)} in {rules[0]}"
        return f"{rules[0]} ({_describe(inner)})"
    if dataclasses.is_dataclass(hint):
        return "a section"
    if typing.get_origin(hint) is Literal:
        return " or ".join(str(choice) for choice in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return f"entries: {_describe(typing.get_args(hint)[0])}"
    names = {
        int: "an integer",
        float: "a number",
        bool: "true or false",
        str: "text",
        types.NoneType: "nothing",
    }
    return names[hint]


def _show(value: object) -> str:
    if value is None:
        return "nothing"
    return repr(list(value) if isinstance(value, tuple) else value)


def _join(where: str, key: object) -> str:
    return f"{where}.{key}" if where else str(key)
