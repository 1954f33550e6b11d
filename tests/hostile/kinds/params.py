"""params.yaml: types, ranges, keys, encodings, bombs; what DVC would read otherwise."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.hostile.case import ACCEPTED, Case
from tests.hostile.project import params_with, replaced, write_text

KIND = "params.yaml"
FILE = "params.yaml"
INDEX = ("index",)

VALUES: dict[str, tuple[str, Any, tuple[str, ...]]] = {
    "a patch of a fraction of a pixel": ("patch_px", 32.5, ("patch_px", "32.5")),
    "a patch of text": ("patch_px", "thirty-two", ("patch_px",)),
    "a patch of nothing": ("patch_px", None, ("patch_px",)),
    "a patch smaller than the network takes": ("patch_px", 1, ("patch_px",)),
    "a patch of a million pixels": ("patch_px", 10**6, ("patch_px",)),
    "a patch of a negative side": ("patch_px", -32, ("patch_px",)),
    "true where a number is meant": ("patch_px", True, ("patch_px",)),
    "an unknown source": ("source", "cooked", ("source", "phantom", "raw")),
    "an unknown dataset": ("dataset", "camelyon17", ("dataset", "camelyon17")),
    "an unknown corpus": ("pretraining_dataset", "kather", ("pretraining_dataset",)),
    "an unknown method": ("pretraining_methods", ["simclr"], ("pretraining_methods",)),
    "no method": ("pretraining_methods", [], ("pretraining_methods",)),
    "a method twice": ("pretraining_methods", ["random", "random"], ("pretraining_methods",)),
    "methods that are one text": ("pretraining_methods", "random", ("pretraining_methods",)),
    "a seed twice": ("training_seeds", [0, 0], ("training_seeds",)),
    "a negative seed": ("training_seeds", [-1], ("training_seeds",)),
    "a seed of 10^20": ("training_seeds", [10**20], ("training_seeds",)),
    "a fraction of labels of 0": ("alpha", 0.0, ("alpha",)),
    "a fraction of labels above 1": ("alpha", 1.0001, ("alpha",)),
    "a fraction of labels that is no number": ("alpha", float("nan"), ("alpha",)),
    "an infinite fraction of labels": ("alpha", float("inf"), ("alpha",)),
    "mu of 0": ("mu", 0, ("mu",)),
    "mu of 1.5": ("mu", 1.5, ("mu",)),
    "more operations than there are": ("n_aug", 11, ("n_aug",)),
    "slide_level that is a text": ("slide_level", "yes please", ("slide_level",)),
    "slides mapped by no method": (
        "slide_level.pretraining_methods",
        ["rps"],
        ("slide_level.pretraining_methods", "rsp"),
    ),
    "two resolutions": ("corpora.own.mpps", [1.0, 2.0], ("corpora.own.mpps",)),
    "resolutions in falling order": ("corpora.own.mpps", [4.0, 2.0, 1.0], ("corpora.own.mpps",)),
    "a resolution twice": ("corpora.own.mpps", [1.0, 1.0, 2.0], ("corpora.own.mpps",)),
    "a resolution of 0": ("corpora.own.mpps", [0.0, 1.0, 2.0], ("corpora.own.mpps",)),
    "resolutions of text": ("corpora.own.mpps", ["fine", "medium", "coarse"], ("corpora.own.mpps",)),
    "no triples": ("corpora.own.num_train", 0, ("corpora.own.num_train",)),
    "more triples than there is tissue for": ("corpora.own.num_train", 10**7, ("are requested", "num_train")),
    "10^30 triples": ("corpora.own.num_train", 10**30, ("num_train",)),
    "a tissue mask of 0 µm/px": ("index.tissue_mpp", 0, ("index.tissue_mpp",)),
    "an unknown validation": ("labels.own.validation", "none", ("labels.own.validation", "none")),
    "a validation of counts": (
        "labels.own.validation",
        {"num_tumor": 300, "num_normal": 300},
        ("labels.own.validation", "separate"),
    ),
    "a whole split for validation": ("index.validation_fraction", 1.0, ("index.validation_fraction",)),
    "tissue above 1": ("index.min_tissue_fraction", 1.5, ("index.min_tissue_fraction",)),
    "a probability of -1": ("pretrain.augmentation.prob", -1, ("pretrain.augmentation.prob",)),
    "a learning rate of 0": ("finetune.paper.lr", 0.0, ("finetune.paper.lr",)),
    "a negative weight decay": ("finetune.paper.weight_decay", -1.0, ("finetune.paper.weight_decay",)),
    "an unknown optimizer": ("finetune.paper.optimizer", "lion", ("finetune.paper.optimizer", "lion")),
    "milestones in falling order": ("finetune.paper.milestones", [5, 2], ("finetune.paper.milestones",)),
    "an infinite learning rate": ("finetune.paper.lr", float("inf"), ("finetune.paper.lr",)),
    "one fold": ("cross_validation.num_folds", 1, ("cross_validation.num_folds",)),
    "a stride of 0": ("heatmap.own.stride_um", 0, ("heatmap.own.stride_um",)),
    "an infinite stride": ("heatmap.own.stride_um", float("inf"), ("heatmap.own.stride_um",)),
    "a stride that is no number": ("heatmap.own.stride_um", float("nan"), ("heatmap.own.stride_um",)),
    "an infinite radius": ("heatmap.detection.radius_um", float("inf"), ("heatmap.detection.radius_um",)),
    "an unknown kernel": ("aggregate.kernel", "poly", ("aggregate.kernel",)),
    "no C": ("aggregate.C", [], ("aggregate.C",)),
    "99 replicates": ("compare.num_replicates", 99, ("compare.num_replicates",)),
    "a queue longer than an epoch": ("pretrain.moco.queue_size", 10**6, ()),
    "a section where a number is meant": ("alpha", {"train": 0.1}, ("alpha",)),
    "a list where a section is meant": ("index", [1, 2], ("index",)),
    "a number where a section is meant": ("corpora.own", 7, ("corpora.own",)),
    "a name with an escape sequence": ("dataset", "\x1b[31mown", ("dataset",)),
    "a value of a million characters": ("dataset", "o" * 10**6, ("params.yaml",)),
}
ACCEPTED_ANYWAY = ("a queue longer than an epoch",)  # MoCo is not among the methods.


def _text(change: Callable[[str], str | bytes]) -> Callable[[], None]:
    return lambda: write_text(FILE, change(Path(FILE).read_text()))


def _yaml_bomb() -> str:
    """Nine levels of nine references: 10^9 entries when written out."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    return "\n".join(lines) + "\n"


def _as_fifo() -> None:
    os.remove(FILE)
    os.mkfifo(FILE)


def _as_folder() -> None:
    os.remove(FILE)
    os.mkdir(FILE)


def _as_loop() -> None:
    os.remove(FILE)
    os.symlink(FILE, FILE)


FILES: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "no file": (lambda: os.remove(FILE), (FILE,)),
    "an empty file": (_text(lambda text: ""), (FILE,)),
    "a file of blanks": (_text(lambda text: " \n \n"), (FILE,)),
    "a file of comments": (_text(lambda text: "# nothing\n"), (FILE,)),
    "a list": (_text(lambda text: "- a\n- b\n"), (FILE,)),
    "one word": (_text(lambda text: "params"), (FILE,)),
    "a tab where blanks are meant": (replaced(FILE, "alpha:", "\talpha:"), (FILE,)),
    "an open bracket": (_text(lambda text: text + "more: [1, 2\n"), (FILE,)),
    "two documents": (_text(lambda text: text + "---\n" + text), (FILE,)),
    "an unknown key": (_text(lambda text: text + "alhpa: 1\n"), (FILE, "alhpa", "alpha")),
    "a missing key": (replaced(FILE, "alpha: 1.0\n", ""), (FILE, "alpha")),
    "a key twice": (_text(lambda text: text + "alpha: 0.5\n"), (FILE, "alpha")),
    "a section twice": (_text(lambda text: text + "index:\n  seed: 1\n"), (FILE, "index")),
    "a key twice in a section": (
        replaced(FILE, "  tissue_mpp:", "  tissue_mpp: 8.0\n  tissue_mpp:"), (FILE, "tissue_mpp"),
    ),
    "a key twice in another way of writing": (_text(lambda text: text + "'alpha': 0.5\n"), (FILE, "alpha")),
    "keys that are numbers": (_text(lambda text: text + "1: 2\n"), (FILE,)),
    "a key that is a list": (_text(lambda text: text + "? [1, 2]\n: 3\n"), (FILE,)),
    "a reference to itself": (_text(lambda text: text + "loop: &loop [*loop]\n"), (FILE,)),
    "a bomb of references": (_text(lambda text: text + _yaml_bomb()), (FILE,)),
    "a bomb in a known key": (
        _text(lambda text: _yaml_bomb() + text.replace("pretraining_methods:\n- random", "pretraining_methods: *a9")),
        (FILE,),
    ),
    "brackets 100,000 deep": (_text(lambda text: "[" * 100_000), (FILE,)),
    "a section 5,000 deep": (_text(lambda text: text + "deep: " + "{a: " * 5_000 + "1" + "}" * 5_000 + "\n"), (FILE,)),
    "a Python object": (_text(lambda text: text + "run: !!python/object/apply:os.system ['touch owned']\n"), (FILE,)),
    "a tag nobody knows": (_text(lambda text: text + "run: !secret 1\n"), (FILE,)),
    "UTF-16": (_text(lambda text: text.encode("utf-16")), (FILE,)),
    "Latin-1 with an umlaut": (_text(lambda text: (text + "# Größe\n").encode("latin-1")), (FILE,)),
    "bytes that are no text": (_text(lambda text: bytes(range(256)) * 16), (FILE,)),
    "a null character": (_text(lambda text: text.replace("own", "o\0wn", 1)), (FILE,)),
    "a bell in a key": (_text(lambda text: text + '"al\\apha": 1\n'), (FILE,)),
    "a key of two lines": (_text(lambda text: text + '"al\\npha": 1\n'), (FILE,)),
    "a right-to-left override in a key": (_text(lambda text: text + '"\\u202Eahpla": 1\n'), (FILE,)),
    "a key of 10,000 characters": (_text(lambda text: text + "k" * 10_000 + ": 1\n"), (FILE,)),
    "a FIFO": (_as_fifo, (FILE,)),
    "a folder": (_as_folder, (FILE,)),
    "a link to itself": (_as_loop, (FILE,)),
    "a device without end": (lambda: (os.remove(FILE), os.symlink("/dev/zero", FILE)), (FILE,)),
    "an empty device": (lambda: (os.remove(FILE), os.symlink("/dev/null", FILE)), (FILE,)),
    "a file nobody may read": (lambda: os.chmod(FILE, 0), (FILE,)),
    "a number in sixties": (replaced(FILE, "patch_px: 32", "patch_px: 0:32"), (FILE, "patch_px")),
    "a large number in eights": (replaced(FILE, "patch_px: 32", "patch_px: 0o7777777777"), (FILE, "patch_px")),
    "a date": (replaced(FILE, "patch_px: 32", "patch_px: 2026-01-01"), (FILE, "patch_px")),
}  # fmt: skip

BENIGN: dict[str, Callable[[], object]] = {
    "a byte order mark": _text(lambda text: b"\xef\xbb\xbf" + text.encode()),
    "line ends of Windows": _text(lambda text: text.replace("\n", "\r\n")),
    "1e-3 without a point": replaced(FILE, "lr: 0.001", "lr: 1e-3"),
    "no line end at the end": _text(lambda text: text.rstrip("\n")),
    "comments and blank lines": _text(lambda text: "# 50 µm\n\n" + text + "\n\n"),
    "keys in another order": _text(lambda text: "\n".join(_sections(text)[::-1]) + "\n"),
    "a link to a file": lambda: (os.rename(FILE, "other.yaml"), os.symlink("other.yaml", FILE)),
    "a file that is read-only": lambda: os.chmod(FILE, 0o444),
}


def _sections(text: str) -> list[str]:
    result: list[str] = []
    for line in text.splitlines():
        if line[:1] in (" ", "-"):
            result[-1] += "\n" + line
        else:
            result.append(line)
    return result


def _reads_as_dvc() -> None:
    """012 is 12 for DVC, which reads YAML 1.2, and 10 for YAML 1.1: the record must be of what is run."""
    import pandas as pd

    centers = pd.read_csv("data/index/centers.csv")
    assert (centers["split"] == "validation").sum() == 12, "012 is read as 10, and DVC records 12"


def cases() -> Iterator[Case]:
    """All of the kind."""
    for name, (key, value, mentions) in VALUES.items():
        code = ACCEPTED if name in ACCEPTED_ANYWAY else 1
        yield Case(KIND, name, INDEX, params_with(**{key.replace(".", "__"): value}), mentions, code=code)
    for name, (prepare, mentions) in FILES.items():
        yield Case(KIND, name, INDEX, prepare, mentions)
    for name, prepare in BENIGN.items():
        yield Case(KIND, name, INDEX, prepare, code=ACCEPTED)
    number = replaced(FILE, "num_validation: 8", "num_validation: 012")
    yield Case(KIND, "a number with a leading zero", INDEX, number, code=ACCEPTED, check=_reads_as_dvc)
