"""Texts of users where a language would read them as more than text, and descriptions whose seal nobody has opened."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser

from histo_monai.models.checkpoint import load_model, save_model
from histo_monai.pipeline.commands.export import bundle_settings
from histo_monai.pipeline.commands.map import Look
from histo_monai.wsi.export.bundle import write_bundle
from tests.hostile.case import ACCEPTED, EITHER, REFUSED, Case
from tests.hostile.project import MAP, OWN, RUN, STUDENT, all_of, edit, params_with, run, write_text
from tests.hostile.texts import TEXTS, UNPRINTABLE

LANGUAGES, SEALS = "texts into languages", "doors without seals"
BUNDLE, DESCRIPTION = Path("bundle"), Path("bundle/models/model.json")
EXPORT = ("export", str(STUDENT), "--bundle", str(BUNDLE))
IMPORT = ("import", str(BUNDLE), "--output", "back")
FRESH = (*MAP[:-1], "new")
LOOK = bundle_settings(Look())

Change = Callable[[], object]


def _described(path: Path = STUDENT, **changes: Any) -> Change:
    """A model that somebody has made with these texts, its digests right."""

    def change() -> None:
        state, about = load_model(path)
        for one in (path, path.with_suffix(".json")):
            one.unlink()
        save_model(path, state, about | changes)

    return change


def _everywhere(text: str) -> Change:
    def change() -> None:
        _, about = load_model(STUDENT)
        weights = {"sha256": "0" * 64, "license": text}
        _described(
            classes=[text, "normal"], corpus=text, dataset=text, source=text, method=text, stage=text,
            metrics={"validation_x": text}, encoder={**about["encoder"], "weights": weights},
        )()  # fmt: skip

    return change


def _nothing_ran() -> None:
    assert not list(Path().rglob("owned*"))
    assert not list(Path("..").glob("evil*"))


def _monai_runs_nothing() -> None:
    """MONAI's own parser resolves the metadata to what stands there, and finds no text of a user in the config."""
    _nothing_ran()
    parser = ConfigParser()
    parser.read_meta(BUNDLE / "configs/metadata.json")
    parser.read_config(BUNDLE / "configs/inference.json")
    parser.parse()
    about = json.loads((BUNDLE / "configs/metadata.json").read_text())
    assert parser.get_parsed_content("_meta_") == about
    assert parser.get_parsed_content("description", eval_expr=False).get_config().endswith("model.json'")
    classes = json.loads(DESCRIPTION.read_text())["classes"]
    assert classes[0] not in (BUNDLE / "configs/inference.json").read_text() or len(classes[0]) < 9
    _nothing_ran()


def _mapped(text: str) -> Change:
    def check() -> None:
        _nothing_ran()
        assert {path.parent for path in Path("new").rglob("*")} == {Path("new")}
        with open("new/s6.map.csv", newline="") as file:
            assert next(csv.reader(file))[-3:] == [f"model:{text}", "model:normal", "model_distance"]
        found = json.loads(Path("new/s6.map.geojson").read_text())["features"]
        named = [one["properties"]["classification"] for one in found]
        names = {one.get("name") or ": ".join(one["names"]) for one in named}
        assert names <= {text, "normal"}

    return check


def _relabeled(text: str) -> Change:
    """Squares of tumor are of a class of this name."""

    def change() -> None:
        path = OWN / "patches.csv"
        with path.open(newline="") as file:
            rows = [[text if cell == "tumor" else cell for cell in row] for row in csv.reader(file)]
        path.unlink()
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(rows)

    return change


class _Elements(HTMLParser):
    """Names of the elements of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]


def _no_script(path: str) -> Change:
    def check() -> None:
        page = _Elements()
        page.feed(Path(path).read_text())
        assert not page.names & {"script", "iframe", "object"}

    return check


def _of_languages() -> Iterator[Case]:
    for name, text in TEXTS.items():
        yield Case(
            LANGUAGES, f"a model of {name}, as a bundle", (*EXPORT, f"--authors={text}"), _everywhere(text),
            code=ACCEPTED, state="done", check=_monai_runs_nothing,
        )  # fmt: skip
    for name, text in UNPRINTABLE.items():
        yield Case(
            LANGUAGES, f"a class of {name}, as a bundle", EXPORT, _described(classes=[text, "normal"]),
            ("classes",), state="done",
        )  # fmt: skip
    for name, text in UNPRINTABLE.items():
        if "NUL" not in name:
            author = text.replace("\ud800", "\udc80")
            yield Case(
                LANGUAGES, f"authors of {name}", (*EXPORT, f"--authors={author}"),
                code=ACCEPTED, state="done", check=_monai_runs_nothing,
            )  # fmt: skip
    for name in ("$x", "@x", "%x", "17", "a b 'c' \"d\"", "`x`", "<b>"):
        yield Case(
            LANGUAGES, f"a bundle called {name}", (*EXPORT[:-1], name), code=ACCEPTED, state="done", check=_nothing_ran
        )  # fmt: skip
    for name in ("a#b", "a\nb"):
        yield Case(
            LANGUAGES, f"a bundle called {name!r}", (*EXPORT[:-1], name), mentions=("MONAI",), state="done"
        )
    for name in TEXTS:
        if any(
            word in name
            for word in ("folder", "slash", "root", "dots", "matplotlib", "dollar", "HTML", "Chinese")
        ):
            text = TEXTS[name]
            yield Case(
                LANGUAGES, f"a map of {name}", FRESH, _described(classes=[text, "normal"]),
                code=ACCEPTED, state="done", check=_mapped(text),
            )  # fmt: skip
    for name in ("a formula of matplotlib that is none", "an attribute of HTML"):
        changes = all_of(
            _relabeled(TEXTS[name]), params_with(heatmap__own__positive_class=None), partial(run, "index")
        )
        yield Case(
            LANGUAGES, f"finetune with labels of {name}", ("finetune", *RUN), changes,
            code=ACCEPTED, state="done", check=_nothing_ran,
        )  # fmt: skip
        yield Case(
            LANGUAGES, f"check with labels of {name}", ("check",), changes,
            code=EITHER, state="done", check=_no_script("data/check/index.html"),
        )  # fmt: skip


def _bundle(change: Change) -> Change:
    return all_of(lambda: write_bundle(STUDENT, BUNDLE, LOOK, "a"), change)


def _json(path: Path, change: Callable[[dict[str, Any]], object]) -> Change:
    def edited() -> None:
        about = json.loads(path.read_text())
        change(about)
        write_text(path, json.dumps(about, indent=2) + "\n")

    return edited


def _with(path: Path, **changes: Any) -> Change:
    return _json(path, lambda about: about.update(changes))


def _without(path: Path, key: str) -> Change:
    return _json(path, lambda about: about.pop(key))


def _instead(make: Callable[[Path], object]) -> Change:
    return lambda: (DESCRIPTION.unlink(), make(DESCRIPTION))


_SEAL = "description_sha256"
CHANGED: dict[str, Change] = {
    "half the µm/px": _with(DESCRIPTION, mpp=0.5),
    "no µm/px": _with(DESCRIPTION, mpp=None),
    "classes that are turned": _with(DESCRIPTION, classes=["tumor", "normal"]),
    "another class": _with(DESCRIPTION, classes=["normal", "cyst"]),
    "no classes": _with(DESCRIPTION, classes=None),
    "larger patches": _with(DESCRIPTION, patch_px=64),
    "another head": _json(
        DESCRIPTION, lambda about: about.update(head={"pair": "linear"}.get(about["head"], "pair"))
    ),
    "another corpus": _with(DESCRIPTION, corpus="camelyon16"),
    "another source": _with(DESCRIPTION, source="phantom"),
    "better metrics": _with(DESCRIPTION, metrics={"validation_accuracy": 1.0}),
    "another provenance": _with(DESCRIPTION, provenance={}),
    "another kind": _with(DESCRIPTION, kind="encoder"),
    "another digest of the weights": _with(DESCRIPTION, sha256="0" * 64),
    "another mean": _json(DESCRIPTION, lambda about: about["encoder"].update(mean=[0.0, 0.0, 0.0])),
    "another encoder": _json(DESCRIPTION, lambda about: about["encoder"].update(name="resnet34")),
    "a license": _json(
        DESCRIPTION, lambda about: about["encoder"].update(weights={"sha256": "0", "license": "MIT"})
    ),
    "a key more": _with(DESCRIPTION, more=1),
    "a key less": _without(DESCRIPTION, "method"),
    "a seal of another": _with(DESCRIPTION, **{_SEAL: "0" * 64}),
    "an empty seal": _with(DESCRIPTION, **{_SEAL: ""}),
    "a seal that is null": _with(DESCRIPTION, **{_SEAL: None}),
    "a seal that is true": _with(DESCRIPTION, **{_SEAL: True}),
    "a format of before": _with(DESCRIPTION, format=2),
    "a key twice": lambda: edit(DESCRIPTION, lambda text: text.replace("{", '{"mpp": 0.5,', 1)),
    "no JSON": lambda: write_text(DESCRIPTION, "mpp: 1"),
    "a list": lambda: write_text(DESCRIPTION, "[]"),
    "nothing": lambda: write_text(DESCRIPTION, ""),
    "a folder": _instead(Path.mkdir),
    "a FIFO": _instead(os.mkfifo),
    "a device without end": _instead(lambda path: path.symlink_to("/dev/zero")),
}


def _of_seals() -> Iterator[Case]:
    for name, change in CHANGED.items():
        yield Case(
            SEALS, f"import of a bundle: {name}", IMPORT, _bundle(change), ("model.json",), REFUSED, state="done"
        )  # fmt: skip
    yield Case(
        SEALS, "import of a bundle: no seal", IMPORT, _bundle(_without(DESCRIPTION, _SEAL)), ("no seal",), state="done"
    )  # fmt: skip
    yield Case(
        SEALS, "import of a bundle that is whole", IMPORT, _bundle(lambda: None), code=ACCEPTED, state="done"
    )
    beside = STUDENT.with_suffix(".json")
    doors = {
        "map": FRESH, "export": EXPORT, "evaluate": ("evaluate", *RUN),
        "import --like": ("import", "w.pt", "--like", str(STUDENT), "--output", "back"),
    }  # fmt: skip
    for name, argv in doors.items():
        for what, change in (
            ("no seal", _without(beside, _SEAL)),
            ("half the µm/px", _with(beside, mpp=0.5)),
        ):
            mentions = ("no seal",) if what == "no seal" else ("model.json",)
            prepare = all_of(change, partial(write_text, "w.pt", b"x"))
            yield Case(
                SEALS, f"{name}: {what}", argv, prepare, mentions, state="done", leaves=("project/data/checkpoints*",)
            )  # fmt: skip


def cases() -> Iterator[Case]:
    """All of both kinds."""
    yield from _of_languages()
    yield from _of_seals()
