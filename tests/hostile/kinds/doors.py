"""Records and drafts of ours that are sealed anew in another shape, or spoiled after a call was killed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from histo_monai.utils.storage import RECORD_SEAL, file_sha256, opened, sealed
from tests.hostile.case import ACCEPTED, EITHER, Case
from tests.hostile.project import MAP, write_text

RECORDS, DRAFTS = "records sealed anew", "drafts"


def _resealed(path: Path, change: Callable[[dict[str, Any]], Any]) -> Callable[[], None]:
    """A record that says something else, with a digest that holds."""

    def make() -> None:
        content = opened(json.loads(path.read_text()), RECORD_SEAL)
        assert content is not None
        changed = change(content)
        write_text(path, json.dumps(sealed(content if changed is None else changed, RECORD_SEAL)))

    return make


def _with(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """One value, keys dotted; `...` removes the key."""

    def change(content: dict[str, Any]) -> None:
        *way, last = name.split(".")
        for key in way:
            content = content[key]
        if value is ...:
            del content[last]
        else:
            content[last] = value

    return change


SHAPES: dict[str, tuple[str, Any]] = {
    "files that are a list": ("files", ["a.csv"]),
    "files that are null": ("files", None),
    "no files": ("files", ...),
    "a digest that is a number": ("files", {"a.csv": 1}),
    "a digest that is short": ("files", {"a.csv": "abc"}),
    "a file outside": ("files", {"../../params.yaml": "0" * 64}),
    "a file from the root": ("files", {"/etc/hostname": "0" * 64}),
    "a name with a zero": ("files", {"a\0b": "0" * 64}),
    "a name of an escape": ("files", {"\x1b[2J\r": "0" * 64}),
    "provenance that is a list": ("provenance", [1]),
    "provenance that is a text": ("provenance", "none"),
    "provenance that is empty": ("provenance", {}),
    "inputs that are a list": ("provenance.inputs", ["params.yaml"]),
    "an input's digest that is null": ("provenance.inputs", {"params.yaml": None}),
    "slides that are a number": ("provenance.slides", 7),
    "images that are a list": ("provenance.images", [1]),
    "a number of images in words": ("provenance.images", {"num_files": "one", "sha256": "0" * 64}),
    "packages that are a list": ("provenance.packages", ["torch"]),
    "no packages": ("provenance.packages", ...),
    "a version that is a list": ("provenance.packages", {"torch": [2]}),
    "a commit that is a number": ("provenance.git_commit", 7),
    "no digest of the code": ("provenance.code_sha256", ...),
    "a precision that is a list": ("provenance.precision", [16]),
}
OF_MAPS: dict[str, tuple[str, Any]] = {
    "a slide that is a text": ("slide", "s6.tif"),
    "a slide without path": ("slide.path", ...),
    "a path that is a number": ("slide.path", 7),
    "no origin": ("made_from", ...),
    "an origin that is a list": ("made_from", [1]),
    "an origin of texts": ("made_from.slide_mpp", "one"),
    "settings that are a list": ("made_from.settings", [1]),
    "a setting that is an escape": ("made_from.settings.stride_um", "\x1b[2J"),
    "classes that are a number": ("made_from.classes", 3),
    "models that are a list": ("made_from.model_sha256", ["x"]),
    "nothing of how it is drawn": ("drawn_as", ...),
    "drawn as a text": ("drawn_as", "red"),
}
INDEX, MAPPED = Path("data/index/metrics.json"), Path("maps/s6.map.json")


def _check_verify(path: Path, word: str) -> None:
    """`verify` in a child: one line a finding, no control character, a FAIL that names the record."""
    import contextlib
    import io

    from histo_monai.pipeline.cli import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = main(["verify", str(path.parent)])
    lines = printed.getvalue().splitlines()
    assert status == 1, lines
    assert all(line.isprintable() for line in lines), lines
    named = [line for line in lines if line.startswith("FAIL") and path.name in line]
    assert any(word in line for line in named), lines


def _verified(path: Path, change: Callable[[], object], word: str) -> Callable[[], None]:
    def prepare() -> None:
        change()
        _check_verify(path, word)

    return prepare


DRAFT = Path("maps/.map.unfinished/s6.map.csv")


def _draft(change: Callable[[], object]) -> Callable[[], None]:
    """A call that was killed after it mapped the slide and before it drew it; then something is spoiled."""

    def make() -> None:
        DRAFT.parent.mkdir()
        shutil.copy("maps/s6.map.csv", DRAFT)
        about = opened(json.loads(MAPPED.read_text()), RECORD_SEAL)
        assert about is not None
        for name in ("slide", "drawn_as", "provenance", "files"):
            about.pop(name)
        about["csv_sha256"] = file_sha256(DRAFT)
        DRAFT.with_suffix(".json").write_text(json.dumps(sealed(about, RECORD_SEAL)))
        write_text("right.csv", DRAFT.read_bytes())
        for path in Path("maps").glob("s6.map.*"):
            path.unlink()
        change()

    return make


def _scores_are_right() -> None:
    assert Path("maps/s6.map.csv").read_bytes() == Path("right.csv").read_bytes()


def _other_score() -> None:
    lines = DRAFT.read_text().splitlines()
    lines[1] = lines[1].rpartition(",")[0] + ",0.123456"
    write_text(DRAFT, "\n".join(lines) + "\n")


DRAFT_CHANGES: dict[str, Callable[[], object]] = {
    "as it was": lambda: None,
    "another score": _other_score,
    "half the scores": lambda: write_text(DRAFT, DRAFT.read_bytes()[:200]),
    "no scores": lambda: write_text(DRAFT, b""),
    "another grid": lambda: write_text(
        DRAFT.with_suffix(".json"), DRAFT.with_suffix(".json").read_text().replace("32.0", "64.0")
    ),
    "a list": lambda: write_text(DRAFT.with_suffix(".json"), "[]"),
    "brackets": lambda: write_text(DRAFT.with_suffix(".json"), "[" * 100_000),
    "no description": lambda: DRAFT.with_suffix(".json").unlink(),
    "a description without digests": lambda: write_text(
        DRAFT.with_suffix(".json"), json.dumps({"made_from": {}, "models": ["model"]})
    ),
}


def cases() -> Iterator[Case]:
    """All of the kind."""
    done = partial(Case, state="done")
    yield from _of_records()
    for name, spoil in DRAFT_CHANGES.items():
        yield done(
            DRAFTS,
            name,
            MAP,
            _draft(spoil),
            code=ACCEPTED,
            check=_scores_are_right,
            leaves=("project/maps*",),
        )


def _of_records() -> Iterator[Case]:
    for name, (key, value) in SHAPES.items():
        for path in (INDEX, MAPPED):
            if key == "provenance.images" and path == MAPPED:
                continue
            change = _verified(path, _resealed(path, _with(key, value)), "")
            yield Case(RECORDS, f"{path.name}: {name}", ("verify", "nowhere"), change, state="done")
    for name, (key, value) in OF_MAPS.items():
        change = _resealed(MAPPED, _with(key, value))
        yield Case(RECORDS, f"map: {name}", MAP, change, code=EITHER, state="done", leaves=("project/maps*",))
    for name, (key, value) in SHAPES.items():
        if key.startswith("files"):
            change = _resealed(MAPPED, _with(key, value))
            yield Case(
                RECORDS, f"map: {name}", MAP, change, code=EITHER, state="done", leaves=("project/maps*",)
            )
