"""Keys of params and options of the command line that were renamed, and errors that state the new names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from histo_monai.utils.settings.reader import ParamsError

_TRAINING = r"(finetune|consistency)\.(.+\.)?"
RENAMED: tuple[tuple[str, str, str], ...] = (
    ("", "corpus", "pretraining_dataset"),
    ("", "methods", "pretraining_methods"),
    ("", "students", "semisupervised_methods"),
    ("", "seeds", "training_seeds"),
    (r"pretrain\.", "seeds", "pretraining_seeds"),
    ("", "whole_slides", "slide_level"),
    ("", "embed", "features"),
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
"""Regular expression of the section, with its dot; old key in it; new key. `pretraining_seeds` is at the top level."""

RENAMED_OPTIONS = {
    "--encoder": "--pretraining-seed",
    "--folder": "--output",
    "--positive": "--positive-class",
}


class RenamedKeysError(ParamsError):
    """A params file with keys of an older version.

    Attributes:
        lines: one for each old key, with its first place and the new key.
    """

    def __init__(self, lines: list[str]) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


def check_renamed(tree: object) -> None:
    """Refuse a tree of params with renamed keys.

    Raises:
        RenamedKeysError: there are some.
    """
    places: dict[tuple[str, str, str], list[str]] = {}
    for section, key in _keys(tree, ""):
        for rule in RENAMED:
            if rule[1] == key and re.fullmatch(rule[0], section):
                places.setdefault(rule, []).append(f"`{section}{key}`")
    lines = []
    for (_, _, new), (first, *more) in places.items():
        place = " at the top level" if new == "pretraining_seeds" else ""
        lines.append(f"{first}{f' and {len(more)} more' * bool(more)}: renamed. Fix: write `{new}`{place}.")
    if lines:
        raise RenamedKeysError(lines)


def renamed_option(argv: Sequence[str]) -> str:
    """The error of the first renamed option on a command line; empty without one."""
    options = (word.partition("=")[0] for word in argv)
    old = next((option for option in options if option in RENAMED_OPTIONS), None)
    return f"{old}: renamed. Fix: write {RENAMED_OPTIONS[old]}." if old else ""


def _keys(tree: Any, section: str) -> Iterator[tuple[str, str]]:
    """Section, with its dot, and key of every value."""
    if not isinstance(tree, Mapping):
        return
    for key, value in tree.items():
        yield section, str(key)
        yield from _keys(value, f"{section}{key}.")
