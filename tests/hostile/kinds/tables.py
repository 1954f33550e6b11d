"""Tables and JSON below data/ that somebody changed, cut off or removed between two stages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.hostile.case import ACCEPTED, EITHER, REFUSED, Case
from tests.hostile.project import INDEX, RUN, with_cell, write_text

TABLES, SCORES, RESULTS = "tables of the index", "scores of maps", "results of stages"
FINETUNE, EVALUATE, HEATMAP, AGGREGATE = (
    (stage, *RUN) for stage in ("finetune", "evaluate", "heatmap", "aggregate")
)
PRETRAIN, COMPARE, SUGGEST = ("pretrain", "--method", "random"), ("compare",), ("suggest", *RUN)
LOGS = ("project/data/tensorboard*", "project/data/checkpoints*")

Change = Callable[[Path], Callable[[], object]]


def _bytes(change: Callable[[bytes], bytes]) -> Change:
    return lambda path: lambda: write_text(path, change(path.read_bytes()))


def _cell(row: int, column: str, value: str) -> Change:
    return lambda path: with_cell(path, row, column, value)


def _without_column(column: str) -> Change:
    return _bytes(lambda data: data.replace(column.encode(), b"other", 1))


def _row_again(data: bytes) -> bytes:
    return data + data.splitlines(keepends=True)[1]


ANY_TABLE: dict[str, Change] = {
    "gone": lambda path: path.unlink,
    "empty": _bytes(lambda data: b""),
    "cut off in the middle of a row": _bytes(lambda data: data[: data.index(b"\n") + 20]),
    "noise": _bytes(lambda data: bytes(range(256)) * 40),
    "a JSON": _bytes(lambda data: b'{"slide_id": []}'),
    "a folder": lambda path: lambda: (path.unlink(), path.mkdir()),
}
PATCHES: dict[str, Change] = {
    "without labels": _without_column("label,"),
    "a place in words": _cell(3, "y", "top"),
    "a split nobody knows": _cell(3, "split", "dev"),
    "a side in words": _cell(3, "side_px", "large"),
    "a rank that is missing": _cell(3, "label_rank", ""),
}
CENTERS: dict[str, Change] = {
    "a place in words": _cell(20, "y", "top"),
    "a slide nobody knows": _cell(20, "slide_id", "s99"),
    "rows of no split": _bytes(lambda data: data.replace(b"validation", b"dev")),
    "a place that is missing": _cell(20, "x", ""),
    "an infinite place": _cell(20, "x", "inf"),
}
SLIDES: dict[str, Change] = {
    "a file that is gone": _bytes(lambda data: data.replace(b".tif", b".tiff")),
    "µm/px in words": _cell(6, "mpp", "fine"),
    "negative µm/px": _cell(6, "mpp", "-1"),
    "a slide twice": _bytes(_row_again),
}
WHOLE_SLIDES: dict[str, Change] = {
    "an id upwards": _cell(2, "slide_id", "../../../../escaped"),
    "an absolute id": _cell(2, "slide_id", "/tmp/escaped"),
    "an id of a null character": _cell(2, "slide_id", "s\0"),
    "a slide twice": _bytes(_row_again),
    "a file that is gone": _cell(2, "path", "data/raw/own/gone.tif"),
    "µm/px in words": _cell(2, "mpp", "fine"),
    "an annotation that is gone": _cell(2, "annotation", "data/raw/own/gone.xml"),
    "an annotation that is a password file": _cell(2, "annotation", "/etc/passwd"),
}


def _of_two_slides(change: Change) -> Change:
    """So that a run that goes on is short."""

    def both(path: Path) -> Callable[[], object]:
        def spoil() -> None:
            write_text(path, b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
            change(path)()

        return spoil

    return both


def _json(change: Callable[[Any], Any]) -> Change:
    return lambda path: lambda: write_text(path, json.dumps(change(json.loads(path.read_text()))))


ANY_JSON: dict[str, Change] = {
    "gone": lambda path: path.unlink,
    "empty": _bytes(lambda data: b""),
    "cut off": _bytes(lambda data: data[:-5]),
    "a list": _bytes(lambda data: b"[]"),
    "a number": _bytes(lambda data: b"17"),
    "100,000 brackets": _bytes(lambda data: b"[" * 100_000),
    "bytes that are no text": _bytes(lambda data: b"\xff\xfe" * 50),
}

MAP_CSV = Path("data/heatmaps/random-0-paper-0/scores/s6.csv")
CSVS: dict[str, Change] = {
    "a value of nan": _cell(3, "student", "nan"),
    "an infinite value": _cell(3, "student", "inf"),
    "a value above 1": _cell(3, "student", "1.7"),
    "a value in words": _cell(3, "student", "high"),
    "a cell beyond the slide": _cell(3, "row", "100000"),
    "a negative cell": _cell(3, "column", "-7"),
    "a cell twice": lambda path: lambda: _cell_twice(path),
    "half a cell": _cell(3, "row", "0.5"),
    "a row too few": _bytes(lambda data: b"".join(data.splitlines(keepends=True)[:-1])),
    "another model": _bytes(lambda data: data.replace(b"student", b"teacher", 1)),
}
JSONS: dict[str, Change] = {
    "a stride of 0": _json(lambda about: about | {"stride_um": 0}),
    "a stride of nan": _json(lambda about: about | {"stride_um": float("nan")}),
    "a stride of a millionth": _json(lambda about: about | {"stride_um": 1e-6}),
    "another stride": _json(lambda about: about | {"stride_um": 2 * about["stride_um"]}),
    "a slide of 10^9 pixels a side": _json(lambda about: about | {"size_yx": [10**9, 10**9]}),
    "a slide of one side": _json(lambda about: about | {"size_yx": [512]}),
    "a smaller slide": _json(lambda about: about | {"size_yx": [64, 64]}),
    "no models": _json(lambda about: about | {"models": []}),
    "models that are a number": _json(lambda about: about | {"models": 7}),
    "another number of cells": _json(lambda about: about | {"num_cells": 3}),
}


def _cell_twice(path: Path) -> None:
    lines = path.read_text().splitlines()
    write_text(path, "\n".join([*lines[:2], lines[1], *lines[3:]]) + "\n")


PREDICTIONS = Path("data/evaluation/random-0-paper-0/predictions.csv")
DIAGNOSES = Path("data/diagnosis/random-0-paper-0/slides.csv")
CHOICE = Path("data/models/random-0-paper-0/student/choice.json")
FOLDS = Path("data/models/random-0-paper-0/student/folds/folds.csv")
OTHERS: tuple[tuple[str, tuple[str, ...], Path, Change, int | None], ...] = (
    ("a probability in words", COMPARE, PREDICTIONS, _cell(3, "student_tumor", "likely"), REFUSED),
    ("a probability of nan", COMPARE, PREDICTIONS, _cell(3, "student_tumor", "nan"), REFUSED),
    ("a probability above 1", COMPARE, PREDICTIONS, _cell(3, "student_tumor", "1.5"), REFUSED),
    ("a patch twice", COMPARE, PREDICTIONS, _bytes(_row_again), REFUSED),
    ("a label nobody knows", COMPARE, PREDICTIONS, _cell(3, "label", "cyst"), REFUSED),
    ("a score in words", COMPARE, DIAGNOSES, _cell(8, "student_score", "bad"), REFUSED),
    ("a slide twice", COMPARE, DIAGNOSES, _bytes(_row_again), REFUSED),
    ("a choice of nobody", EVALUATE, CHOICE, _json(lambda choice: choice | {"chosen": "teacher"}), REFUSED),
    ("a choice of a list", EVALUATE, CHOICE, _json(lambda choice: choice | {"chosen": []}), REFUSED),
    ("no choice", EVALUATE, CHOICE, _json(lambda choice: {}), REFUSED),
    ("a fold that has no model", HEATMAP, FOLDS, _cell(2, "fold", "99"), REFUSED),
    ("a negative fold", HEATMAP, FOLDS, _cell(2, "fold", "-1"), REFUSED),
    ("a fold in words", HEATMAP, FOLDS, _cell(2, "fold", "first"), REFUSED),
)  # fmt: skip


def _of(
    kind: str, argv: tuple[str, ...], path: Path, changes: dict[str, Change], **more: Any
) -> Iterator[Case]:
    for name, change in changes.items():
        yield Case(
            kind, f"{path.name} for {argv[0]}: {name}", argv, change(path), (path.name,), state="done",
            leaves=LOGS, **more
        )  # fmt: skip


def cases() -> Iterator[Case]:
    """All of the three kinds."""
    yield from _of(TABLES, FINETUNE, INDEX / "patches.csv", ANY_TABLE | PATCHES)
    for name, change in (
        ("a place beyond the slide", _cell(3, "y", "90000")),
        ("a row twice", _bytes(_row_again)),
    ):
        title = f"patches.csv for finetune: {name}"
        spoil = change(INDEX / "patches.csv")
        yield Case(TABLES, title, FINETUNE, spoil, code=EITHER, state="done", leaves=LOGS)
    yield from _of(TABLES, PRETRAIN, INDEX / "centers.csv", ANY_TABLE | CENTERS)
    yield from _of(TABLES, PRETRAIN, INDEX / "slides.csv", ANY_TABLE)
    for name, change in SLIDES.items():
        title = f"slides.csv for pretrain: {name}"
        yield Case(TABLES, title, PRETRAIN, change(INDEX / "slides.csv"), (), state="done", leaves=LOGS)
    yield from _of(
        TABLES, SUGGEST, INDEX / "slides.csv", {name: ANY_TABLE[name] for name in ("gone", "noise", "empty")}
    )
    yield from _of(TABLES, AGGREGATE, INDEX / "whole_slides.csv", ANY_TABLE)
    for name, change in WHOLE_SLIDES.items():
        title = f"whole_slides.csv for heatmap: {name}"
        mentions = () if "gone" in name or "password" in name else ("whole_slides.csv",)
        spoil = _of_two_slides(change)(INDEX / "whole_slides.csv")
        yield Case(TABLES, title, HEATMAP, spoil, mentions, state="done", leaves=LOGS)
    yield from _of(TABLES, EVALUATE, INDEX / "labels.json", ANY_JSON)
    yield from _of(SCORES, AGGREGATE, MAP_CSV, ANY_TABLE | CSVS)
    for name, change in (ANY_JSON | JSONS).items():
        title = f"s6.json for aggregate: {name}"
        yield Case(
            SCORES, title, AGGREGATE, change(MAP_CSV.with_suffix(".json")), ("s6",), state="done", leaves=LOGS
        )
    for name, argv, path, change, code in OTHERS:
        title = f"{path.name} for {argv[0]}: {name}"
        yield Case(RESULTS, title, argv, change(path), (path.name,), code=code, state="done", leaves=LOGS)
    for argv, path in ((COMPARE, PREDICTIONS), (COMPARE, DIAGNOSES), (HEATMAP, FOLDS)):
        yield from _of(RESULTS, argv, path, ANY_TABLE)
    yield from _of(RESULTS, EVALUATE, CHOICE, ANY_JSON)
    garbage = Path("data/checkpoints/finetune-random-0-0.pt")
    for name, content in (
        ("noise", b"\x80\x04" * 999),
        ("nothing", b""),
        ("a pickle that runs code", b"cos\nsystem\n(S'touch owned'\ntR."),
    ):
        yield Case(
            RESULTS, f"a state to resume from that is {name}", FINETUNE,
            lambda content=content: write_text(garbage, content), ("is not readable",), code=ACCEPTED, state="done",
            check=_nothing_ran,
        )  # fmt: skip


def _nothing_ran() -> None:
    assert not Path("owned").exists(), "the pickle ran"
