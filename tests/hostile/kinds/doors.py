"""What comes in through doors: checkpoints of others, records and drafts that are sealed anew in another shape."""

from __future__ import annotations

import collections
import json
import shutil
import warnings
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import nn

from histo_monai.networks.checkpoint import load_model
from histo_monai.storage import RECORD_SEAL, file_sha256, opened, sealed
from tests.hostile.case import ACCEPTED, EITHER, Case
from tests.hostile.project import MAP, STUDENT, write_text

CHECKPOINTS, RECORDS, DRAFTS = "checkpoints of others", "records sealed anew", "drafts"
SOURCE = Path("weights.pt")
IMPORT = ("import", str(SOURCE), "--like", str(STUDENT), "--folder", "imported")
FIRST = "encoder.trunk.conv1.weight"
State = dict[str, Any]


def _saved(change: Callable[[State], Any], *, old: bool = False) -> Callable[[], None]:
    """A checkpoint made from the student's tensors."""

    def make() -> None:
        with warnings.catch_warnings(action="ignore"):
            content = change(load_model(STUDENT)[0])
            torch.save(content, SOURCE, _use_new_zipfile_serialization=not old)

    return make


def _first(make: Callable[[torch.Tensor], Any]) -> Callable[[State], State]:
    """One tensor is another."""
    return lambda state: state | {FIRST: make(state[FIRST])}


def _each(make: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[State], State]:
    return lambda state: {name: make(tensor) for name, tensor in state.items()}


def _beside(value: Any) -> Callable[[State], Any]:
    return lambda state: {"state_dict": state, "best": value}


def _under(prefix: str) -> Callable[[State], State]:
    return lambda state: {prefix + name: tensor for name, tensor in state.items()}


def _one_buffer(state: State) -> State:
    """Views of one storage, as a flattened optimizer leaves them."""
    floats = {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}
    parts = torch.cat([tensor.flatten() for tensor in floats.values()]).split(
        [tensor.numel() for tensor in floats.values()]
    )
    return state | {name: part.view_as(floats[name]) for name, part in zip(floats, parts, strict=True)}


def _two_names(state: State) -> State:
    names = [name for name in state if name.endswith("num_batches_tracked")]
    return state | dict.fromkeys(names, state[names[0]])


ORDINARY: dict[str, Callable[[State], Any]] = {
    "as it is": lambda state: state,
    "views of one buffer": _one_buffer,
    "two names of one storage": _two_names,
    "parameters": lambda state: {
        name: nn.Parameter(tensor, requires_grad=tensor.is_floating_point()) for name, tensor in state.items()
    },
    "float16": _each(lambda tensor: tensor.half() if tensor.is_floating_point() else tensor),
    "bfloat16": _each(lambda tensor: tensor.bfloat16() if tensor.is_floating_point() else tensor),
    "float64": _each(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor),
    "channels last": _each(
        lambda tensor: tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor
    ),
    "an ordered dict": lambda state: collections.OrderedDict(state),
    "below module": _under("module."),
    "below state_dict, with an epoch": lambda state: {"state_dict": state, "epoch": 3},
}
ODD: dict[str, tuple[Callable[[State], Any], tuple[str, ...]]] = {
    "sparse": (_first(lambda x: x.to_sparse()), (FIRST, "sparse")),
    "compressed rows": (_first(lambda x: x.flatten(1).to_sparse_csr()), (FIRST, "sparse_csr")),
    "quantized": (_first(lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)), (FIRST, "qint8")),
    "nested": (_first(lambda x: torch.nested.nested_tensor([x, x])), (FIRST, "nested")),
    "without memory": (_first(lambda x: x.to("meta")), (FIRST, "meta")),
    "complex": (_first(lambda x: x.to(torch.complex64)), (FIRST, "complex64")),
    "float8": (_first(lambda x: x.to(torch.float8_e4m3fn)), (FIRST, "float8")),
    "uint16": (_first(lambda x: x.abs().to(torch.uint16)), (FIRST, "uint16")),
    "int8": (_first(lambda x: x.to(torch.int8)), (FIRST, "int8")),
    "int64": (_first(lambda x: x.to(torch.int64)), (FIRST, "int64")),
    "truths": (_first(lambda x: x > 0), (FIRST, "bool")),
    "all int8": (_each(lambda x: x.to(torch.int8)), ("int8",)),
    "one number for 10^13": (_first(lambda x: torch.ones(1).expand(10**13)), ("bytes",)),
    "one number for 10^9, sixteen times": (
        lambda state: dict.fromkeys([f"{i}" for i in range(16)], torch.ones(1).expand(10**9)),
        ("bytes",),
    ),
    "another shape": (_first(lambda x: x[:, :, :3]), (FIRST,)),
    "nan": (_first(lambda x: x * float("nan")), (FIRST, "NaN")),
    "no tensors": (lambda state: {"epoch": 1}, ("no tensors",)),
    "a list": (lambda state: list(state.values()), ("no tensors",)),
    "one tensor": (lambda state: state[FIRST], ("no tensors",)),
    "a tensor missing": (lambda state: {k: v for k, v in state.items() if k != FIRST}, (FIRST,)),
    "a tensor too many": (lambda state: state | {"more": torch.zeros(2)}, ("more",)),
    "as torch compiles it": (_under("_orig_mod."), ("_orig_mod.",)),
    "below model.resnet": (_under("model.resnet."), ("resnet.",)),
    "below words with an escape": (_under("\x1b[2J."), (r"\x1b[2J.",)),
    "by numbers": (lambda state: dict(enumerate(state.values())), ("missing",)),
    "a scalar of numpy": (_beside(np.float64(1)), ("numpy", "scalar")),
    "an array of numpy": (_beside(np.zeros(3)), ("numpy",)),
    "a path": (_beside(Path("x")), ("pathlib",)),
    "a module": (_beside(nn.Linear(2, 2)), ("torch.nn.modules.linear.Linear",)),
    "a function": (_beside(print), ("print",)),
    "a default dict": (_beside(collections.defaultdict(list)), ("defaultdict",)),
}


def _packed(num_mib: int) -> None:
    """A member that unpacks to far more than the file has."""
    torch.save({FIRST: torch.zeros(4)}, SOURCE)
    with zipfile.ZipFile(SOURCE) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(SOURCE, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members.items():
            with archive.open(name, "w", force_zip64=True) as member:
                for _ in range(num_mib if name.endswith("/data/0") else 0):
                    member.write(bytes(2**20))
                member.write(content)


def _overlapping() -> None:
    with zipfile.ZipFile(SOURCE, "w") as archive:
        archive.writestr("weights/data.pkl", b"x" * 2**20)
        archive.filelist += [archive.filelist[0]] * 1000


def _cut() -> None:
    _saved(lambda state: state)()
    write_text(SOURCE, SOURCE.read_bytes()[:-1000])


def _as_safetensors(tensor: torch.Tensor) -> Callable[[], None]:
    def make() -> None:
        state = load_model(STUDENT)[0] | {FIRST: tensor}
        safetensors.torch.save_file(state, "weights.safetensors")

    return make


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

    from histo_monai.__main__ import main

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
    for name, change in ORDINARY.items():
        for old in (False, True):
            title = f"{name}{', as torch 1.5 wrote it' if old else ''}"
            yield done(CHECKPOINTS, title, IMPORT, _saved(change, old=old), code=ACCEPTED, check=_imported)
    for name, (change, says) in ODD.items():
        yield done(CHECKPOINTS, name, IMPORT, _saved(change), ("weights.pt", *says))
    for name in ("sparse", "quantized", "without memory", "complex", "int8", "a scalar of numpy", "a path"):
        change, says = ODD[name]
        title = f"{name}, as torch 1.5 wrote it"
        yield done(CHECKPOINTS, title, IMPORT, _saved(change, old=True), ("weights.pt", *says))
    files: dict[str, Callable[[], object]] = {
        "a member of 512 MB in a few hundred kB": partial(_packed, 512),
        "members that lie over each other": _overlapping,
        "cut off": _cut,
        "empty": lambda: write_text(SOURCE, b""),
        "a zip of nothing": lambda: zipfile.ZipFile(SOURCE, "w").close(),
    }
    for name, make in files.items():
        yield done(CHECKPOINTS, name, IMPORT, make, ("weights.pt",))
    for kind in (torch.int8, torch.bool, torch.float8_e5m2, torch.complex64, torch.int64):
        yield done(
            CHECKPOINTS,
            f"safetensors of {kind}",
            ("import", "weights.safetensors", *IMPORT[2:]),
            _as_safetensors(torch.ones(64, 3, 7, 7).to(kind)),
            ("weights.safetensors", FIRST),
        )
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


def _imported() -> None:
    """It is the student, within the precision of the kind of numbers that came."""
    wanted, found = load_model(STUDENT)[0], load_model("imported/model.safetensors")[0]
    assert set(wanted) == set(found)
    names = [name for name in wanted if wanted[name].is_floating_point()]
    assert all(torch.allclose(wanted[name], found[name].float(), rtol=1e-2, atol=1e-2) for name in names)


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
