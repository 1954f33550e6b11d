"""A project as small as one can be: seven slides of half a millimeter, labels, and what every stage makes of them."""

from __future__ import annotations

import copy
import csv
import importlib
import io
import multiprocessing
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import tifffile
import yaml

from histo_monai.pipeline.arguments import COMMANDS
from histo_monai.pipeline.arguments import STAGES as NAMES
from histo_monai.pipeline.cli import main

ROOT = Path(__file__).resolve().parent.parent.parent
OWN = Path("data/raw/own")
INDEX = Path("data/index")
RUN = ("--method", "random", "--seed", "0")
STAGES = (
    ("index",),
    ("pretrain", "--method", "random"),
    *((stage, *RUN) for stage in ("finetune", "consistency", "evaluate", "heatmap", "aggregate")),
    ("features", "--method", "random"),
    ("mil", *RUN),
    ("compare",),
    ("report",),
)
STUDENT = Path("data/models/random-0-paper-0/student/model.safetensors")
MAP = ("map", "data/raw/own/s6.tif", "--model", str(STUDENT), "--output", "maps")
STAGES_AND_COMMANDS = (
    *(f"histo_monai.pipeline.stages.{name}" for name in NAMES),
    *(f"histo_monai.pipeline.commands.{name}" for name in COMMANDS),
)
SPLITS = ("train", "train", "train", "train", "validation", "test", "test")
SIDE_PX = 512
STATES = ("own", "done", "camelyon16", "kather", "breastpathq")
"""Own slides with labels; the same after all stages and a `map`; a tree of each public dataset, not indexed yet."""

PARAMS: Mapping[str, Any] = {
    "source": "raw",
    "dataset": "own",
    "pretraining_dataset": "own",
    "pretraining_methods": ["random"],
    "semisupervised_methods": ["paper"],
    "slide_level": {
        "pretraining_methods": ["random"],
        "semisupervised_methods": ["paper"],
        "num_encoders": None,
    },
    "training_seeds": [0],
    "alpha": 1.0,
    "mu": 1,
    "n_aug": 1,
    "patch_px": 32,
    "encoder.name": "test_resnet",  # timm's smallest: a tenth of the weights and of the time of a ResNet-18
    "corpora.own": {"mpps": [1.0, 2.0, 4.0], "num_train": 16, "num_validation": 8},
    "corpora.camelyon16.num_normal": 0,
    "corpora.camelyon16.num_tumor": 0,
    **{f"labels.{name}.validation": "separate" for name in ("breastpathq", "camelyon16", "kather", "own")},
    "labels.camelyon16.train": {"num_tumor": 2, "num_normal": 2},
    "labels.camelyon16.separate_validation": {"num_tumor": 2, "num_normal": 2},
    "labels.camelyon16.test": {"num_tumor": 2, "num_normal": 2},
    "labels.camelyon16.unlabeled": 0,
    "labels.breastpathq.unlabeled": 0,
    "labels.own.unlabeled": 0,
    "labels.own.regions": {
        **{"mpp": 1.0, "min_fraction": 0.5, "num_per_region": 8},
        **{"ignored_classes": [], "overlaps": "refused"},
    },
    "pretrain.moco.queue_size": 16,
    "finetune.recipe": None,
    "finetune.paper": {
        **{"epochs": 1, "batch_size": 8, "optimizer": "sgd", "lr": 0.001, "weight_decay": 0.0},
        **{"milestones": [], "unaugmented_fraction": 0.0},
    },
    "consistency.paper": {
        **{"epochs": 1, "batch_size": 8, "optimizer": "sgd", "lr": 0.001, "weight_decay": 0.0},
        **{"milestones": [], "unaugmented_fraction": 0.0},
    },
    "cross_validation.num_folds": 2,
    "heatmap.own": {"stride_um": 32.0, "positive_class": "tumor"},
    "heatmap.detection": {"threshold": 0.2, "radius_um": 64.0, "smoothing_um": 32.0},
    "mil.num_folds": 2,
    "mil.epochs": 2,
    "aggregate.C": [1.0],
    "aggregate.gamma": [0.1],
    "aggregate.num_folds": 2,
    "aggregate.num_permutations": 2,
    "compare.num_replicates": 100,
}


def tissue(seed: int, side_px: int) -> np.ndarray:
    """Pink with grain, shape (side_px, side_px, 3), uint8, RGB."""
    grain = np.random.default_rng(seed).integers(-40, 40, (-(-side_px // 8), -(-side_px // 8), 1))
    pixels = np.clip(np.array([200, 110, 170]) + grain.repeat(8, 0).repeat(8, 1), 0, 255)
    return pixels[:side_px, :side_px].astype(np.uint8)


def slide_pixels(seed: int, side_px: int = SIDE_PX) -> np.ndarray:
    """Tissue with a rim of white glass."""
    pixels = np.full((side_px, side_px, 3), 245, np.uint8)
    rim = side_px // 16
    pixels[rim:-rim, rim:-rim] = tissue(seed, side_px - 2 * rim)
    return pixels


def write_slide(
    path: Path, seed: int = 0, mpp: float | None = 1.0, pixels: np.ndarray | None = None, **tags: Any
) -> None:
    """A tiled TIFF; without `mpp` it says no resolution."""
    if mpp is not None:
        tags = {"resolution": (10_000 / mpp, 10_000 / mpp), "resolutionunit": "CENTIMETER", **tags}
    settings = {"tile": (128, 128), "photometric": "rgb", "compression": "deflate", "metadata": None, **tags}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    tifffile.imwrite(path, slide_pixels(seed) if pixels is None else pixels, **settings)


def write_image(path: Path, seed: int = 0, side_px: int = 32, pixels: np.ndarray | None = None) -> None:
    """An image of tissue, or of the pixels given (RGB)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = tissue(seed, side_px) if pixels is None else pixels
    assert cv2.imwrite(str(path), pixels[..., ::-1] if pixels.ndim == 3 and pixels.shape[2] == 3 else pixels)


def write_text(path: Path | str, text: str | bytes) -> None:
    """A new file in the place of the one that was there, which may be linked to another project's."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)


def edit(path: Path | str, change: Callable[[str], str]) -> None:
    """Rewrite a file of text."""
    before = Path(path).read_text()
    after = change(before)
    assert after != before, f"{path}: the case changes nothing"
    write_text(path, after)


def replaced(path: Path | str, old: str, new: str, count: int = 1) -> Callable[[], None]:
    """A change: the first `count` places of a text in a file become another."""
    return lambda: edit(path, lambda text: text.replace(old, new, count))


def with_cell(path: Path, row: int, column: str, value: str) -> Callable[[], None]:
    """A change: one cell of a csv, in the row of this number (the header is row 1); the column is made if missing."""

    def change() -> None:
        with path.open(newline="") as file:
            rows = list(csv.reader(file))
        if column not in rows[0]:
            rows = [[*cells, column if i == 0 else ""] for i, cells in enumerate(rows)]
        rows[row - 1][rows[0].index(column)] = value
        into = io.StringIO()
        csv.writer(into, lineterminator="\n").writerows(rows)
        write_text(path, into.getvalue().encode("utf-8", "surrogateescape"))

    return change


def with_line(path: Path, row: int, line: str | bytes) -> Callable[[], None]:
    """A change: the row of this number of a file of text is another."""

    def change() -> None:
        lines = path.read_bytes().splitlines()
        lines[row - 1 : row] = (line if isinstance(line, bytes) else line.encode()).split(b"\n")
        write_text(path, b"\n".join(lines) + b"\n")

    return change


def params_with(**changes: Any) -> Callable[[], None]:
    """A change: values of params.yaml, keys dotted (`corpora__own` for `corpora.own`)."""

    def change() -> None:
        tree = yaml.safe_load(Path("params.yaml").read_text())
        for name, value in changes.items():
            set_dotted(tree, name.replace("__", "."), value)
        write_text("params.yaml", yaml.safe_dump(tree))

    return change


def set_dotted(tree: dict[str, Any], name: str, value: Any) -> None:
    """`a.b` of a tree of sections, which gets a copy: what is changed in the tree later is changed nowhere else."""
    *way, last = name.split(".")
    for key in way:
        tree = tree[key]
    tree[last] = copy.deepcopy(value)


def all_of(*changes: Callable[[], object]) -> Callable[[], None]:
    """Changes one after another."""

    def change() -> None:
        for one in changes:
            one()

    return change


def build(folder: Path) -> None:
    """Make `folder`/<state>/project for all of `STATES`.

    This process is warm then: the package is loaded and slides have been read. Stages run in a child: where a process
    has trained, its children cannot.
    """
    cv2.setNumThreads(0)  # Where OpenCV has threads of its own, children wait for them forever.
    for name in STAGES_AND_COMMANDS:
        importlib.import_module(name)
    if not folder.is_dir():
        _write_states(folder)
    os.chdir(folder / "done/project")
    run("index")
    if not Path("maps").is_dir():
        child = multiprocessing.get_context("fork").Process(target=_run_all)
        child.start()
        child.join()
        if child.exitcode != 0:
            raise RuntimeError("the tiny project does not get through all stages")


def _write_states(folder: Path) -> None:
    for state in STATES:
        (folder / state / "project").mkdir(parents=True)
        os.chdir(folder / state / "project")
        write_state(state)


def write_state(state: str) -> None:
    """params.yaml and data of one of `STATES`, no stage run, in the working folder."""
    from tests.hostile import trees

    _write_params(state, encoder="resnet18")  # cases name its tensors
    if state in ("own", "kather", "done"):
        _write_own()
    if state in trees.WRITERS:
        trees.WRITERS[state](Path("data/raw") / state)


def _run_all() -> None:
    for stage in (*STAGES[1:], MAP):
        run(*stage)


def run(*argv: str) -> None:
    """A call that must end well."""
    if main(list(argv)) != 0:
        raise RuntimeError(f"{' '.join(argv)}: refused")


def write_own_project() -> None:
    """params.yaml and own slides with labels, in the working folder."""
    _write_params("own", encoder=str(PARAMS["encoder.name"]))
    _write_own()


def _write_params(state: str, encoder: str) -> None:
    tree = yaml.safe_load((ROOT / "params.yaml").read_text())
    for name, value in (PARAMS | {"encoder.name": encoder}).items():
        set_dotted(tree, name, value)
    if state in ("camelyon16", "kather", "breastpathq"):
        tree["dataset"] = state
    if state in ("camelyon16", "breastpathq"):
        tree["pretraining_dataset"] = state
        tree["corpora"][state] |= PARAMS["corpora.own"]
    if state == "camelyon16":
        tree["corpora"][state] |= {"num_normal": 1, "num_tumor": 1}
    Path("params.yaml").write_text(yaml.safe_dump(tree))


def _write_own() -> None:
    slides, patches = ["slide_id,path,patient_id,label,split"], ["slide_id,y,x,mpp,label,split"]
    for i, split in enumerate(SPLITS):
        write_slide(OWN / f"s{i}.tif", seed=i)
        slides.append(f"s{i},s{i}.tif,P{i},{('tumor', 'normal')[i % 2]},{split}")
        patches += [
            f"s{i},{y},{x},1,{('tumor', 'normal')[(y + x) // 100 % 2]},{split}"
            for y in (150, 350)
            for x in (150, 250)
        ]
    write_text(OWN / "slides.csv", "\n".join(slides) + "\n")
    write_text(OWN / "patches.csv", "\n".join(patches) + "\n")


def copy_state(base: Path, state: str, target: Path) -> None:
    """A project of its own to spoil: small files are copies, models are linked."""
    big = 2**20

    def copy(source: str, into: str) -> None:
        if os.path.getsize(source) > big:
            os.link(source, into)
        else:
            shutil.copy2(source, into)

    shutil.copytree(base / state, target, copy_function=copy, symlinks=True)
