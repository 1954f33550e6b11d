"""Data folders in odd states, what killed runs left, locks, and outputs that would be somebody's inputs."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from histo_monai.pipeline import paths
from histo_monai.utils.storage import claim
from tests.hostile.case import ACCEPTED, EITHER, Case
from tests.hostile.project import INDEX, MAP, OWN, RUN, STUDENT, all_of, slide_pixels, write_slide, write_text
from tests.hostile.trees import LESION, asap

STATES, LOCKS, OVERWRITES = "data folders", "two at once", "outputs over inputs"
DATA, MAPS = Path("data"), Path("maps")
INDEX_CALL = ("index",)
SLIDE = OWN / "s6.tif"
OUTLINES = asap(("_0", "Tumor", LESION))


def _moved_and_linked(path: Path, target: str) -> Callable[[], None]:
    def change() -> None:
        os.rename(path, target)
        path.symlink_to(os.path.relpath(target, path.parent))

    return change


def _instead(path: Path, make: Callable[[Path], object]) -> Callable[[], None]:
    def change() -> None:
        shutil.rmtree(path)
        make(path)

    return change


def _closed(path: Path, mode: int = 0o555) -> Callable[[], None]:
    return lambda: path.chmod(mode)


def _left_by_a_kill() -> None:
    write_text(DATA / ".index.draft/slides.csv", "half")
    write_text(DATA / ".index.before/slides.csv", "older")
    write_text(paths.lock_path("index"), "999999999")


def _is_clean() -> None:
    left = [path.name for path in DATA.iterdir() if path.name.startswith(".")]
    assert not left, f"left behind: {left}"
    assert len((INDEX / "slides.csv").read_text().splitlines()) == 6


INDEXED: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "an index that is a link": (_moved_and_linked(INDEX, "elsewhere"), ("data/index", "link")),
    "an index that is a file": (_instead(INDEX, lambda path: path.write_text("x")), ("data/index",)),
    "an index that is a FIFO": (_instead(INDEX, os.mkfifo), ("data/index",)),
    "an index that is a link to nowhere": (_instead(INDEX, lambda path: path.symlink_to("gone")), ("data/index",)),
    "an index that is a link to itself": (_instead(INDEX, lambda path: path.symlink_to("index")), ("data/index",)),
    "data that is read-only": (_closed(DATA), ("data",)),
    "data that is a link to nowhere": (
        _instead(DATA, lambda path: path.symlink_to("gone")), ("data",),
    ),
    "data that is a file": (_instead(DATA, lambda path: path.write_text("x")), ("data",)),
    "no own data": (_instead(OWN, lambda path: None), ("data/raw/own",)),
    "own data that is a file": (_instead(OWN, lambda path: path.write_text("x")), ("data/raw/own",)),
    "own data that is a link to itself": (_instead(OWN, lambda path: path.symlink_to("own")), ("data/raw/own",)),
    "own data nobody may enter": (_closed(OWN, 0), ("data/raw/own",)),
}  # fmt: skip
TRAINED: dict[str, tuple[Callable[[], object], tuple[str, ...], int | None]] = {
    "a model folder that is a link": (
        _moved_and_linked(Path("data/models/random-0-0/finetuned"), "elsewhere"), ("finetuned", "link"), 1,
    ),
    "a model folder that is a file": (
        _instead(Path("data/models/random-0-0/finetuned"), lambda path: path.write_text("x")), ("finetuned",), 1,
    ),
    "models that are read-only": (_closed(Path("data/models/random-0-0")), ("data/models/random-0-0",), 1),
    "checkpoints that are a file": (lambda: write_text("data/checkpoints", "x"), ("checkpoints",), 1),
    "a log folder that is a file": (
        lambda: (shutil.rmtree("data/tensorboard", ignore_errors=True), write_text("data/tensorboard", "x")),
        ("tensorboard",), 1,
    ),
}  # fmt: skip
RIGHT: dict[str, Callable[[], object]] = {
    "data that is a link": _moved_and_linked(DATA, "elsewhere"),
    "own data that is a link": _moved_and_linked(OWN, "elsewhere"),
    "own data that is read-only": lambda: [path.chmod(0o555) for path in (OWN, OWN.parent)],
    "what a killed run left": _left_by_a_kill,
    "an index of read-only files": lambda: [path.chmod(0o444) for path in INDEX.iterdir()],
    "files of somebody else beside the data": lambda: write_text("data/notes.txt", "mine"),
}


def _held_by_another(hold: Callable[[], object]) -> Callable[[], None]:
    """Another process takes it, and keeps it until the case is over."""

    def change() -> None:
        ready, signal_end = os.pipe()
        if os.fork() == 0:
            hold_open = hold()
            os.write(signal_end, b"x")
            signal.alarm(60)
            while hold_open is not False:
                time.sleep(1)
        os.read(ready, 1)

    return change


def _claims(stage: str, folder: Path) -> Callable[[], object]:
    def hold() -> object:
        held = claim(folder, paths.lock_path(stage))
        held.__enter__()
        return held

    return hold


def _locked_by_nobody() -> None:
    write_text(paths.lock_path("index"), str(os.getpid()))


def _shared_lock() -> object:
    path = paths.lock_path("index")
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("w")
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def _map_to(folder: str, *slides: str) -> tuple[str, ...]:
    return ("map", *(slides or (str(SLIDE),)), "--model", str(STUDENT), "--output", folder)


def _new(path: str, content: str | bytes = "mine") -> Callable[[], None]:
    return lambda: write_text(path, content)


def _linked_folder() -> None:
    Path("new").symlink_to(OWN)


def _hard_linked() -> None:
    for suffix in (".tif", ".map.tif", "-map.tif", "_map.tif"):
        Path("new").mkdir(exist_ok=True)
        os.link(SLIDE, f"new/s6{suffix}")


def _soft_linked() -> None:
    Path("new").mkdir()
    for suffix in (".tif", ".map.tif", ".map.csv", ".map.json"):
        Path(f"new/s6{suffix}").symlink_to(f"../{SLIDE}")


OVER: dict[str, tuple[tuple[str, ...], Callable[[], object], tuple[str, ...]]] = {
    "a folder that is a file": (_map_to("new"), _new("new"), ("new",)),
    "a folder below a file": (_map_to("new/maps"), _new("new"), ("new",)),
    "a folder that is a link to nowhere": (_map_to("new"), lambda: Path("new").symlink_to("gone"), ("new",)),
    "a folder that is read-only": (_map_to("new"), lambda: (Path("new").mkdir(), Path("new").chmod(0o555)), ("new",)),
    "links to the slide in the folder": (_map_to("new"), _soft_linked, ("new/s6",)),
    "outlines onto themselves": (("convert", "a.xml", "a.xml"), _new("a.xml", OUTLINES), ("a.xml",)),
    "outlines onto others": (
        ("convert", "a.xml", "b.geojson"), all_of(_new("a.xml", OUTLINES), _new("b.geojson")), ("b.geojson",),
    ),
    "outlines onto a link to others": (
        ("convert", "a.xml", "b.geojson"),
        all_of(_new("a.xml", OUTLINES), _new("c.geojson"), lambda: Path("b.geojson").symlink_to("c.geojson")),
        ("b.geojson",),
    ),
    "outlines onto a link to nowhere": (
        ("convert", "a.xml", "b.geojson"),
        all_of(_new("a.xml", OUTLINES), lambda: Path("b.geojson").symlink_to("c.geojson")), ("b.geojson",),
    ),
    "outlines onto a folder": (
        ("convert", "a.xml", "b.geojson"), all_of(_new("a.xml", OUTLINES), lambda: Path("b.geojson").mkdir()),
        ("b.geojson",),
    ),
    "outlines below a file": (("convert", "a.xml", "c/b.geojson"), all_of(_new("a.xml", OUTLINES), _new("c")), ("c",)),
    "suggestions into the own data": (("suggest", *RUN, "--output", str(OWN)), lambda: None, ("own",)),
    "suggestions into the annotations": (
        ("suggest", *RUN, "--output", str(OWN / "annotations")),
        lambda: write_text(OWN / "annotations/s0.xml", OUTLINES), ("annotations",),
    ),
    "suggestions over a table of somebody else": (
        ("suggest", *RUN, "--output", "new"), _new("new/suggestions.csv"), ("suggestions.csv",),
    ),
    "suggestions into a file": (("suggest", *RUN, "--output", "new"), _new("new"), ("new",)),
    "suggestions into the working folder": (("suggest", *RUN, "--output", "."), lambda: None, ()),
    "suggestions into a folder with a folder": (
        ("suggest", *RUN, "--output", "new"), _new("new/deep/notes.txt"), ("new",),
    ),
}  # fmt: skip
BESIDE: dict[str, tuple[tuple[str, ...], Callable[[], object]]] = {
    "maps where the slides lie": (_map_to(str(OWN)), lambda: None),
    "maps where the slides lie, through a link": (_map_to("new"), _linked_folder),
    "maps where the slides lie, through ..": (_map_to("data/../data/raw/own"), lambda: None),
    "maps into the working folder, where a slide lies": (
        _map_to(".", "a.tif"),
        lambda: shutil.copy(SLIDE, "a.tif"),
    ),
    "hard links to the slide in the folder": (_map_to("new"), _hard_linked),
    "outlines and pictures of the slide's name in the folder": (
        _map_to("new"), all_of(*(_new(f"new/s6.{suffix}") for suffix in ("geojson", "csv", "png", "json"))),
    ),
    "a map.json of somebody else": (_map_to("new"), _new("new/map.json", "[1, 2]")),
    "a map.json that is cut off": (MAP, _new("maps/map.json", '{"model_sha')),
}  # fmt: skip


def _keep_maps() -> None:
    shutil.copytree(MAPS, "../maps-before")


def _maps_are_new() -> None:
    (table,) = MAPS.glob("*.csv")
    assert table.read_bytes() != (Path("../maps-before") / table.name).read_bytes(), (
        "old scores over a new slide"
    )


def _other_slide() -> None:
    _keep_maps()
    SLIDE.unlink()
    write_slide(SLIDE, pixels=slide_pixels(99)[:, ::-1].copy() // 2 + 100)


def _same_size_and_time() -> None:
    """Another patient's slide that no date tells from the first."""
    about, size = SLIDE.stat(), SLIDE.stat().st_size
    _other_slide()
    data = SLIDE.read_bytes()
    write_text(SLIDE, data + bytes(max(0, size - len(data))))
    os.utime(SLIDE, ns=(about.st_atime_ns, about.st_mtime_ns))


def _another_model() -> None:
    _keep_maps()
    for suffix in (".safetensors", ".json"):
        STUDENT.with_suffix(suffix).unlink()
        shutil.copy(
            Path("data/models/random-0-0/finetuned/folds/without-0").with_suffix(suffix),
            STUDENT.with_suffix(suffix),
        )


STALE: dict[str, tuple[tuple[str, ...], Callable[[], object]]] = {
    "a slide that was replaced": (MAP, _other_slide),
    "a slide that was replaced, of the same time": (MAP, _same_size_and_time),
    "another µm/px": ((*MAP, "--mpp", "0.8"), _keep_maps),
    "another model": (MAP, _another_model),
}  # fmt: skip


def cases() -> Iterator[Case]:
    """All of the three kinds."""
    for name, (prepare, mentions) in INDEXED.items():
        yield Case(STATES, name, INDEX_CALL, prepare, mentions, state="done")
    finetune = ("finetune", *RUN)
    logs = ("project/data/tensorboard*", "project/data/checkpoints*")
    for name, (prepare, mentions, code) in TRAINED.items():
        yield Case(STATES, name, finetune, prepare, mentions, code=code, state="done", leaves=logs)
    yield Case(STATES, "a quota of 1 MB a file", finetune, state="done", leaves=logs, max_file_bytes=10**6)
    for name, prepare in RIGHT.items():
        yield Case(STATES, name, INDEX_CALL, prepare, code=ACCEPTED, state="done", check=_is_clean)
    for argv, folder in (
        (INDEX_CALL, INDEX),
        (finetune, paths.Run("random", 0, 0).finetuned),
        (("compare",), DATA / "comparison"),
    ):
        stage = "finetune-random-0-0" if argv is finetune else argv[0]
        hold = _held_by_another(_claims(stage, folder))
        yield Case(LOCKS, f"{argv[0]} that runs already", argv, hold, ("process",), state="done")
    yield Case(
        LOCKS, "index that somebody looks at", INDEX_CALL, _held_by_another(_shared_lock), ("process",)
    )
    yield Case(
        LOCKS,
        "another stage that runs",
        INDEX_CALL,
        _held_by_another(_claims("compare", DATA / "comparison")),
        code=ACCEPTED,
    )
    yield Case(LOCKS, "a lock that nobody holds", INDEX_CALL, _locked_by_nobody, code=ACCEPTED)
    for name, (argv, prepare, mentions) in OVER.items():
        yield Case(OVERWRITES, name, argv, prepare, mentions, state="done")
    for name, (argv, prepare) in BESIDE.items():
        yield Case(OVERWRITES, name, argv, prepare, code=EITHER, state="done")
    for name, (argv, prepare) in STALE.items():
        yield Case(
            OVERWRITES, f"maps of {name}", argv, prepare, code=ACCEPTED, state="done", check=_maps_are_new,
            leaves=("project/maps/*",),
        )  # fmt: skip
