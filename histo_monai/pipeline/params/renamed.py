"""Errors for keys of older params files and renamed command-line options; each error states the new name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from histo_monai.data.readers.registry import DATASETS
from histo_monai.utils.settings.reader import ParamsError
from histo_monai.utils.settings.recipe import LABEL_KINDS

_TRAINING = r"(finetune|consistency)\.(.+\.)?"
RENAMED: tuple[tuple[str, str, str], ...] = (
    ("", "corpus", "pretraining_dataset"),
    ("", "methods", "pretraining_methods"),
    ("", "students", "semisupervised_methods"),
    ("", "seeds", "training_seeds"),
    (r"pretrain\.", "seeds", "pretraining_seeds"),
    ("", "whole_slides", "slide_level"),
    (r"(whole_slides|slide_level)\.", "methods", "pretraining_methods"),
    (r"(whole_slides|slide_level)\.", "students", "semisupervised_methods"),
    (_TRAINING, "start_shares", "interpolation_weights"),
    (_TRAINING, "keep_shares", "match_class_proportions"),
    (_TRAINING, "plain_share", "unaugmented_fraction"),
    (_TRAINING, "trunk_rate", "backbone_lr_factor"),
    (_TRAINING, "choose_stages", "select_depth"),
    (r"(finetune|consistency)\.recipe\.(\w+\.)?", "decay", "ema_decay"),
    (r"(finetune|consistency)\.recipe\.(\w+\.)?", "stain", "stain_jitter"),
    (r"(finetune|consistency)\.recipe\.(\w+\.)?", "probe", "linear_init"),
    (r"consistency\.methods\.", "neighbors", "spatial_neighbors"),
    (r"consistency\.methods\.(spatial_)?neighbors\.", "stain", "stain_jitter"),
    (r"heatmap\.\w+\.", "positive", "positive_class"),
)
"""Regular expression of the section (with its dot), old key, new key. `pretraining_seeds` is a top-level key."""
_MERGED = (
    (
        r"(?:finetune|consistency)\.recipe\.",
        LABEL_KINDS,
        "stain_jitter: {two_classes: 0.1, many_classes: 0.0, scores: 0.0}",
    ),
    (r"(?:finetune|consistency)\.", tuple(DATASETS), "lr: {camelyon16: 0.003, own: 0.0003}"),
)
"""Regular expression of the section (with its dot), its former subsections, an example in the present form."""

RENAMED_OPTIONS = {
    "--encoder": "--pretraining-seed",
    "--folder": "--output",
    "--positive": "--positive-class",
}


class RenamedKeysError(ParamsError):
    """Params file with keys of an older version.

    Attributes:
        lines: one per old key: first place and new key.
    """

    def __init__(self, lines: list[str]) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


def check_renamed(tree: object) -> None:
    """Refuse a params tree with renamed keys or former subsections.

    Raises:
        RenamedKeysError: one line per old key.
    """
    places: dict[tuple[str, str, str], list[str]] = {}
    former = []
    for section, key, value in _keys(tree, ""):
        for rule in RENAMED:
            if rule[1] == key and re.fullmatch(rule[0], section):
                places.setdefault(rule, []).append(f"`{section}{key}`")
        for pattern, names, example in _MERGED:
            if key in names and re.fullmatch(pattern, section):
                target = section[:-1] if ".recipe." in section else f"{section}paper"
                form = f"each value in {target}, for example {example}"
                form = f"{target}: null" if value is None else form
                former.append(f"{section}{key}: merged into {target}. Fix: write {form}.")
    lines = []
    for (_, _, new), (first, *more) in places.items():
        place = " at the top level" if new == "pretraining_seeds" else ""
        lines.append(f"{first}{f' and {len(more)} more' * bool(more)}: renamed. Fix: write `{new}`{place}.")
    if lines or former:
        raise RenamedKeysError(lines or former)


def renamed_option(argv: Sequence[str]) -> str:
    """Error line of the first renamed option; empty without one."""
    options = (word.partition("=")[0] for word in argv)
    old = next((option for option in options if option in RENAMED_OPTIONS), None)
    return f"{old}: renamed. Fix: write {RENAMED_OPTIONS[old]}." if old else ""


def _keys(tree: Any, section: str) -> Iterator[tuple[str, str, Any]]:
    """Section (with its dot), key and value of every entry."""
    if not isinstance(tree, Mapping):
        return
    for key, value in tree.items():
        yield section, str(key), value
        yield from _keys(value, f"{section}{key}.")
