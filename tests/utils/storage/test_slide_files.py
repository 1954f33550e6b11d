"""Slides of several files: which these are, and that a change in any of them is one of the slide."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from histo_monai.data.readers.own.slides import slide_sha256
from histo_monai.slides import Box, SlideError, open_slide
from histo_monai.utils.storage import (
    InputFileError,
    check_regular,
    file_sha256,
    identify,
    identify_slide,
    open_regular,
    reading,
    slide_files,
)
from tests.several_files import instance, write_dicom, write_mirax_layout, write_vms


def pixels(seed: int = 0) -> np.ndarray:
    """Squares of 8 px, each of one color: JPEG keeps them."""
    return np.random.default_rng(seed).integers(0, 255, (64, 64, 3), np.uint8).repeat(8, 0).repeat(8, 1)


def a_vms(folder: Path) -> Path:
    write_vms(folder / "a.vms", pixels())
    return folder / "a.vms"


def a_dicom(folder: Path) -> Path:
    return write_dicom(folder, pixels())[0]


def a_mirax(folder: Path) -> Path:
    write_mirax_layout(folder / "a.mrxs")
    return folder / "a.mrxs"


SLIDES = {
    "VMS": (a_vms, ["a.jpg", "a.opt", "a_macro.jpg", "a_map.jpg"]),
    "DICOM": (a_dicom, ["1.dcm"]),
    "MIRAX": (a_mirax, ["a/Data0000.dat", "a/Index.dat", "a/Slidedat.ini"]),
}
BESIDE = [(name, beside) for name, (_, files) in SLIDES.items() for beside in files]


@pytest.mark.parametrize("name", SLIDES)
def test_all_files_of_a_slide_are_known(name: str, tmp_path: Path) -> None:
    make, beside = SLIDES[name]
    slide = make(tmp_path)
    (tmp_path / "notes.txt").write_text("of somebody")
    write_vms(tmp_path / "z.vms", pixels(1))
    assert slide_files(slide) == (slide, *(tmp_path / other for other in beside))


@pytest.mark.parametrize("name", ["VMS", "DICOM"])
def test_what_is_drawn_is_what_openslide_reads(name: str, tmp_path: Path) -> None:
    with open_slide(SLIDES[name][0](tmp_path)) as slide:
        assert (slide.size_yx, slide.mpp) == ((512, 512), pytest.approx(1.0))
        read = slide.read(Box((256.0, 256.0), 256, 1.0))
    wanted = pixels()[128:384, 128:384].transpose(2, 0, 1)
    assert np.abs(read.astype(int) - wanted).mean() < 4


@pytest.mark.parametrize(("name", "beside"), BESIDE)
def test_another_file_beside_it_is_another_slide(name: str, beside: str, tmp_path: Path) -> None:
    slide = SLIDES[name][0](tmp_path)
    before, alone, whole = identify_slide(slide), identify(slide), slide_sha256(slide)
    content = (tmp_path / beside).read_bytes()
    about = (tmp_path / beside).stat()
    (tmp_path / beside).write_bytes(bytes(len(content)) or b"x")
    os.utime(tmp_path / beside, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert identify(slide) == alone
    assert identify_slide(slide).sample_sha256 != before.sample_sha256
    assert slide_sha256(slide) != whole


@pytest.mark.parametrize("name", SLIDES)
def test_a_copy_in_another_folder_is_the_same_slide(name: str, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    slide = SLIDES[name][0](tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    copy = tmp_path / "two" / slide.name
    assert identify_slide(copy).sample_sha256 == identify_slide(slide).sample_sha256
    assert identify_slide(copy).size == sum(file.stat().st_size for file in slide_files(slide))


def test_a_slide_of_one_file_is_known_by_that_file(tmp_path: Path) -> None:
    (tmp_path / "a.tif").write_bytes(os.urandom(5_000_000))
    assert identify_slide(tmp_path / "a.tif") == identify(tmp_path / "a.tif")
    assert slide_sha256(tmp_path / "a.tif") == file_sha256(tmp_path / "a.tif")


def test_an_instance_of_another_series_is_of_another_slide(tmp_path: Path) -> None:
    slide = a_dicom(tmp_path)
    before = identify_slide(slide)
    (tmp_path / "2.dcm").write_bytes(instance(pixels(2), 1.0, "1.2.8", "1.2.8.1"))
    assert identify_slide(slide) == before
    (tmp_path / "3.dcm").write_bytes(instance(pixels(2)[::4, ::4].copy(), 4.0, "1.2.9", "1.2.9.7"))
    assert identify_slide(slide) != before


@pytest.mark.parametrize("name", SLIDES)
def test_the_digest_of_slides_csv_is_what_sha256sum_prints(name: str, tmp_path: Path) -> None:
    slide = SLIDES[name][0](tmp_path)
    names = " ".join([slide.name, *SLIDES[name][1]])
    done = subprocess.run(
        f"sha256sum {names} | sha256sum", shell=True, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[0] == slide_sha256(slide)


@pytest.mark.parametrize("name", ["VMS", "DICOM"])
def test_a_file_that_is_replaced_while_the_slide_is_open_is_detected(name: str, tmp_path: Path) -> None:
    make, beside = SLIDES[name]
    with open_slide(make(tmp_path)) as slide:
        slide.read(Box((64.0, 64.0), 32, 1.0))
        (tmp_path / beside[0]).write_bytes(b"another")
        with pytest.raises(SlideError, match="was changed while it was open"):
            slide.read(Box((300.0, 300.0), 32, 1.0))


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(path.parent)
        server.bind(path.name)
        os.chdir(here)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


ODD = {"fifo": _fifo, "socket": _socket, "device": _device}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(("name", "beside"), BESIDE)
def test_what_is_no_file_beside_a_slide_is_refused_before_it_is_opened(
    name: str, beside: str, odd: str, tmp_path: Path
) -> None:
    slide = SLIDES[name][0](tmp_path)
    (tmp_path / beside).unlink()
    ODD[odd](tmp_path / beside)
    for read in (open_slide, identify_slide, slide_sha256):
        with pytest.raises((InputFileError, SlideError), match="is a pipe, socket or device"):
            read(slide)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    "read", [open_slide, identify, identify_slide, file_sha256, open_regular, slide_sha256]
)
def test_what_is_no_file_is_refused_before_it_is_opened(
    read: Callable[[Path], object], odd: str, tmp_path: Path
) -> None:
    ODD[odd](tmp_path / "a")
    with pytest.raises((InputFileError, SlideError), match="is a pipe, socket or device"):
        read(tmp_path / "a")


def test_anything_that_openslide_would_wait_for_beside_an_instance_is_refused(tmp_path: Path) -> None:
    slide = a_dicom(tmp_path)
    os.mkfifo(tmp_path / "anything")
    with pytest.raises(SlideError, match="anything: is a pipe"):
        open_slide(slide)


def test_a_disk_that_does_not_answer_is_an_error_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, released = tmp_path / "a", threading.Event()
    path.write_bytes(b"x")
    monkeypatch.setattr(reading, "OPEN_LIMIT_S", 0.2)
    monkeypatch.setattr(reading, "_stat_and_open", lambda path, answer: released.wait())
    began = time.monotonic()
    with pytest.raises(InputFileError, match=r"a: its disk does not answer within 0\.2 s"):
        check_regular(path)
    released.set()
    assert time.monotonic() - began < 5
