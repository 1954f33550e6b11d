"""Slides of several files, slides replaced since the index, disks without room, pipes and devices instead of files."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import h5py
import numpy as np

from histo_monai.data.readers.own.slides import slide_sha256
from tests.hostile.case import ACCEPTED, Case
from tests.hostile.project import OWN, RUN, STUDENT, all_of, run, slide_pixels, with_cell, write_slide
from tests.several_files import instance, jpeg, write_dicom, write_mirax_layout, write_vms

SEVERAL, REPLACED, FULL, DEVICES = (
    "slides of several files", "slides replaced since the index", "full disks", "pipes and devices",
)  # fmt: skip
VMS, DICOM, MIRAX = OWN / "v.vms", Path("dicom/0.dcm"), OWN / "m.mrxs"
FEATURES = Path("data/features/random-0")
COORDINATES = OWN / "coordinates"
LOGS = ("project/data/tensorboard*", "project/data/checkpoints*", "project/out*")

Change = Callable[[], object]


def _draw_vms(seed: int = 6) -> None:
    write_vms(VMS, slide_pixels(seed))


def _draw_dicom(seed: int = 6) -> None:
    DICOM.parent.mkdir(exist_ok=True)
    write_dicom(DICOM.parent, slide_pixels(seed))


def _mapping(slide: Path, command: str = "map") -> tuple[str, ...]:
    return (command, str(slide), "--model", str(STUDENT), "--output", "out")


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def _closed(path: Path) -> None:
    path.write_bytes(b"x")
    path.chmod(0)


SPECIAL: dict[str, Callable[[Path], object]] = {
    "a FIFO": _fifo,
    "a socket": _socket,
    "/dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "/dev/tty": lambda path: path.symlink_to("/dev/tty"),
    "a link to a FIFO": lambda path: (os.mkfifo("pipe"), path.symlink_to(Path("pipe").absolute())),
}
ODD = SPECIAL | {
    "gone": lambda path: None,
    "a folder": Path.mkdir,
    "closed to all": _closed,
    "a link to nowhere": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
}


def _instead(path: Path, make: Callable[[Path], object]) -> Change:
    def change() -> None:
        path.unlink(missing_ok=True)
        make(path)

    return change


def _touched(path: Path) -> Change:
    """The same size and time, other bytes."""

    def change() -> None:
        about = path.stat()
        path.write_bytes(bytes(about.st_size) or b"x")
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))

    return change


def _several() -> Iterator[Case]:
    case = partial(Case, SEVERAL, state="done", leaves=("project/out*",))
    drawn: dict[str, tuple[Change, Path, tuple[str, ...]]] = {
        "VMS": (_draw_vms, VMS, ("v.jpg", "v_map.jpg", "v_macro.jpg", "v.opt")),
        "DICOM": (_draw_dicom, DICOM, ("1.dcm",)),
    }
    for name, (draw, slide, beside) in drawn.items():
        for command in ("map", "features"):
            call = _mapping(slide, command)
            yield case(f"{command} of a {name}", call, draw, code=ACCEPTED)
            again = all_of(draw, partial(run, *call))
            word = {"map": "map exists", "features": "features exist"}[command]
            yield case(f"{command} of a {name} that is as it was", call, again, (word,), ACCEPTED)
            other = all_of(again, partial(draw, 5))  # type: ignore[arg-type]
            mentions = ("the slide's content differs",)
            yield case(f"{command} of a {name} drawn anew under its names", call, other, mentions, ACCEPTED)
        call = _mapping(slide)
        for file, (what, make) in itertools.product(beside[:3], SPECIAL.items()):
            odd = all_of(draw, _instead(slide.with_name(file), make))
            yield case(f"{file} of a {name} is {what}", call, odd, (slide.name, file))
    call = _mapping(VMS)
    macro = partial(VMS.with_name("v_macro.jpg").write_bytes, jpeg(slide_pixels(9)[::8, ::8]))
    other = all_of(_draw_vms, partial(run, *call), macro)
    yield case("another macro beside a VMS", call, other, ("content differs",), ACCEPTED)
    for what in ("gone", "a folder", "closed to all", "a link to nowhere", "a link to itself"):
        odd = all_of(_draw_vms, _instead(VMS.with_name("v.jpg"), ODD[what]))
        yield case(f"the image of a VMS is {what}", call, odd, ("v.vms",))
    for what, make in SPECIAL.items():
        beside = all_of(_draw_dicom, partial(make, DICOM.with_name("notes")))
        yield case(f"{what} beside a DICOM", _mapping(DICOM), beside, ("notes",))
        index = all_of(partial(write_mirax_layout, MIRAX), _instead(OWN / "m/Index.dat", make))
        yield case(f"the index of a MIRAX is {what}", _mapping(MIRAX), index, ("m.mrxs", "Index.dat"))
    other_series = all_of(
        _draw_dicom,
        partial(run, *_mapping(DICOM)),
        lambda: Path("dicom/x.dcm").write_bytes(instance(slide_pixels(3), 1.0, "1.2.8", "1.2.8.1")),
    )
    yield case("an instance of another series", _mapping(DICOM), other_series, ("map exists",), ACCEPTED)
    yield from _listed()


def _listed() -> Iterator[Case]:
    """In slides.csv."""
    listed = all_of(_draw_vms, with_cell(OWN / "slides.csv", 8, "path", "v.vms"))

    def stated(digest: Callable[[], str]) -> Change:
        return lambda: (listed(), with_cell(OWN / "slides.csv", 8, "sha256", digest())())

    plain = subprocess.run
    of_one = stated(lambda: plain(["sha256sum", VMS], capture_output=True, text=True, check=True).stdout[:64])
    yield Case(SEVERAL, "a VMS in slides.csv", ("index",), listed, code=ACCEPTED)
    right = stated(lambda: slide_sha256(VMS))
    yield Case(SEVERAL, "the sha256 of all files of a VMS", ("index",), right, code=ACCEPTED)
    yield Case(SEVERAL, "the sha256 of a .vms alone", ("index",), of_one, ("row 8", "v.vms", "5 files"))
    replaced = all_of(right, _touched(OWN / "v.jpg"))
    yield Case(
        SEVERAL, "the sha256 of a VMS before its image was replaced", ("index",), replaced, ("row 8", "v.vms")
    )


def _replaced() -> Iterator[Case]:
    encoder = ("--method", "random")
    stages: dict[tuple[str, ...], str] = {
        ("pretrain", *encoder): "s0",
        **{(stage, *RUN): "s0" for stage in ("finetune", "consistency")},
        **{(stage, *RUN): "s5" for stage in ("evaluate", "heatmap", "mil")},
        ("features", *encoder): "s5",
        ("suggest", *RUN): "s0",
        ("check",): "s5",
        ("report",): "s5",
    }
    changes: dict[str, Callable[[Path], object]] = {
        "another slide": lambda path: write_slide(path, seed=90),
        "a smaller slide": lambda path: write_slide(path, pixels=slide_pixels(90, 256)),
        "one at another µm/px": lambda path: write_slide(path, seed=int(path.stem[1:]), mpp=0.5),
        "other bytes of its size and time": lambda path: _touched_pixels(path),
    }
    for (call, stem), (what, change) in itertools.product(stages.items(), changes.items()):
        slide = OWN / f"{stem}.tif"
        yield Case(
            REPLACED, f"{what} before {call[0]}", call, partial(change, slide), (slide.name,), state="done",
            leaves=LOGS,
        )  # fmt: skip
    for call, stem in stages.items():
        if call[0] == "report":  # draws what is there
            continue
        yield Case(
            REPLACED, f"a FIFO before {call[0]}", call, _instead(OWN / f"{stem}.tif", _fifo), (f"{stem}.tif",),
            state="done", leaves=LOGS,
        )  # fmt: skip
    call = _mapping(OWN / "s5.tif")
    for before, now, mentions in (
        ("float32", "bfloat16", "precision was float32, now bfloat16"),
        ("bfloat16", "float32", "precision was bfloat16, now float32"),
        ("bfloat16", "bfloat16", "map exists"),
    ):
        mapped = all_of(partial(_compute_in, before), partial(run, *call), partial(_compute_in, now))
        name = f"a map in {now} where it was in {before}"
        yield Case(REPLACED, name, call, mapped, (mentions,), ACCEPTED, state="done", leaves=LOGS)


def _compute_in(precision: str) -> None:
    os.environ["HISTO_MONAI_PRECISION"] = precision


def _touched_pixels(path: Path) -> None:
    about = path.stat()
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(64)
    path.unlink()
    path.write_bytes(content)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def _full() -> Iterator[Case]:
    features = _mapping(OWN / "s5.tif", "features")
    calls: dict[str, tuple[tuple[str, ...], Path]] = {
        "features": (features, Path("out")),
        "map": (_mapping(OWN / "s5.tif"), Path("out")),
        "features of the project": (("features", "--method", "random"), Path("data/checkpoints")),
    }
    fresh = partial(shutil.rmtree, FEATURES)
    for name, (call, folder) in calls.items():
        before = fresh if name == "features of the project" else (lambda: None)
        for num_bytes in (2000, 4096, 8192, 10_000):
            yield Case(
                FULL, f"{name} where a file has {num_bytes} bytes at most", call, before, state="done",
                leaves=LOGS, max_file_bytes=num_bytes,
            )  # fmt: skip
        for kib in ((8, 16, 24, 32) if name == "map" else (8, 16, 32, 64)) if _can_mount() else ():
            small = all_of(before, partial(_mount, folder, kib))
            yield Case(
                FULL,
                f"{name} on a disk of {kib} KiB",
                call,
                small,
                ("the disk is full",),
                state="done",
                leaves=LOGS,
            )


def _can_mount() -> bool:
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _mount(folder: Path, kib: int) -> None:
    """For this process alone."""
    folder.mkdir(parents=True, exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    new_mounts, private = 0x20000, 0x40000 | 0x4000
    assert libc.unshare(new_mounts) == 0
    assert libc.mount(b"none", b"/", None, private, None) == 0
    assert libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, f"size={kib}k,mode=777".encode()) == 0


def _h5(path: Path, **attributes: float) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("coords", data=np.full((4, 2), 100)).attrs.update(
            {"patch_size_level0": 32, **attributes}
        )


def _linked(path: Path) -> None:
    os.mkfifo("pipe")
    with h5py.File(path, "w") as file:
        file["coords"] = h5py.ExternalLink(str(Path("pipe").absolute()), "coords")


def _elsewhere(path: Path) -> None:
    os.mkfifo("pipe")
    with h5py.File(path, "w") as file:
        file.create_dataset("coords", (4, 2), "i4", external=[(str(Path("pipe").absolute()), 0, 32)])


def _virtual(path: Path) -> None:
    layout = h5py.VirtualLayout((4, 2), "i4")
    layout[:] = h5py.VirtualSource("/dev/zero", "coords", (4, 2))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("coords", layout)


def _devices() -> Iterator[Case]:
    coordinates = COORDINATES / "s0.h5"
    linking = {"a link into a FIFO": _linked, "bytes of a FIFO": _elsewhere, "a view of /dev/zero": _virtual}
    for what, make in (SPECIAL | linking).items():
        place = all_of(partial(COORDINATES.mkdir, exist_ok=True), partial(make, coordinates))
        yield Case(DEVICES, f"coordinates that are {what}", ("index",), place, ("s0.h5",))
    inner = FEATURES / "s0.h5"
    for what, make in (SPECIAL | linking).items():
        yield Case(
            DEVICES,
            f"features that are {what}",
            ("mil", *RUN),
            _instead(inner, make),
            ("s0.h5",),
            state="done",
        )
    model = STUDENT
    for what, make in SPECIAL.items():
        call = ("map", str(OWN / "s5.tif"), "--model", str(model), "--output", "out")
        for file in (model, model.with_suffix(".json"), OWN / "s5.tif"):
            yield Case(
                DEVICES,
                f"{file.name} of map is {what}",
                call,
                _instead(file, make),
                (file.name,),
                state="done",
            )
        slides = ("index",)
        yield Case(DEVICES, f"a slide that is {what}", slides, _instead(OWN / "s1.tif", make), ("s1.tif",))


def cases() -> Iterator[Case]:
    """All of these kinds."""
    yield from _several()
    yield from _replaced()
    yield from _full()
    yield from _devices()
