from __future__ import annotations

import multiprocessing
import zipfile
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from histo_monai.utils.files.trees import (
    ArchivePool,
    find_tree,
    has_tree,
    is_file,
    list_folders,
    list_images,
    read_bytes,
    read_image,
    split_archive,
)

WriteImage = Callable[..., Path]


@pytest.fixture
def tree(tmp_path: Path, write_image: WriteImage) -> Path:
    for number, name in enumerate(("b/2.tif", "b/10.TIF", "a/1.png", "b/c/3.jpg")):
        write_image(tmp_path / "data" / name, number)
    for name in ("b/._2.tif", "b/notes.txt", "__MACOSX/b/2.tif", ".git/x.png"):
        (tmp_path / "data" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "data" / name).write_text("text")
    return tmp_path / "data"


@pytest.mark.parametrize("leading", [True, False])
def test_a_zip_lists_and_reads_as_the_folder_that_was_put_in(
    tree: Path, tmp_path: Path, zipped: Callable[..., None], leading: bool
) -> None:
    root = tmp_path / "packed"
    root.mkdir()
    zipped(tree, root / "data.zip", leading)
    packed = find_tree(root, "data")
    assert packed == (root / "data.zip/data" if leading else root / "data.zip")
    assert list_images(packed) == list_images(tree) == ["a/1.png", "b/10.TIF", "b/2.tif", "b/c/3.jpg"]
    assert list_folders(packed) == list_folders(tree) == ["a", "b"]
    assert list_images(packed / "b") == ["10.TIF", "2.tif", "c/3.jpg"]
    assert is_file(packed / "b/notes.txt")
    assert not is_file(packed / "b/none.txt")
    assert read_bytes(packed / "b/notes.txt") == b"text"
    for name in list_images(tree):
        assert np.array_equal(read_image(packed / name), read_image(tree / name))


def test_a_folder_beside_its_zip_is_refused_and_neither_is_named(
    tree: Path, zipped: Callable[..., None]
) -> None:
    root = tree.parent
    assert find_tree(root, "data") == tree
    zipped(tree, root / "data.zip")
    with pytest.raises(ValueError, match=r"data and .*data\.zip: the same data twice"):
        find_tree(root, "data")
    with pytest.raises(ValueError, match=r"holds neither other/ nor other\.zip"):
        find_tree(root, "other")
    assert has_tree(root, "data")
    assert not has_tree(root, "other")


@pytest.mark.parametrize("name", ["x.png", "x.tif", "x.tiff", "X.TIF"])
def test_an_image_is_read_to_the_last_bit_as_another_library_reads_it(
    tmp_path: Path, write_image: WriteImage, name: str
) -> None:
    path = write_image(tmp_path / name, 1)
    assert np.array_equal(read_image(path), np.asarray(Image.open(path).convert("RGB")))


def test_a_jpeg_is_read_in_the_order_red_green_blue(tmp_path: Path, write_image: WriteImage) -> None:
    pixels = np.zeros((24, 24, 3), np.uint8)
    pixels[..., 0] = 200
    red = read_image(write_image(tmp_path / "x.jpg", pixels=pixels)).mean((0, 1))
    assert red == pytest.approx([200, 0, 0], abs=3)


def test_gray_becomes_three_channels_and_transparent_becomes_white(
    tmp_path: Path, write_image: WriteImage
) -> None:
    gray = np.arange(64, dtype=np.uint8).reshape(8, 8)
    assert np.array_equal(read_image(write_image(tmp_path / "gray.png", pixels=gray)), np.dstack([gray] * 3))
    clear = np.zeros((2, 1, 4), np.uint8)
    clear[1] = (100, 50, 0, 51)  # a fifth of the color, four fifths of white
    seen = read_image(write_image(tmp_path / "clear.png", pixels=clear))
    assert seen[:, 0].tolist() == [[255, 255, 255], [224, 214, 204]]


def test_sixteen_bits_are_refused(tmp_path: Path, write_image: WriteImage) -> None:
    path = write_image(tmp_path / "deep.png", pixels=np.full((8, 8, 3), 4000, np.uint16))
    with pytest.raises(ValueError, match=r"deep\.png: uint16 per channel.*8 bits"):
        read_image(path)


@pytest.mark.parametrize("suffix", ["png", "tif", "jpg"])
@pytest.mark.parametrize("fraction", [0.0, 0.2, 0.9])
def test_a_truncated_image_is_one_line_and_nothing_else_on_the_terminal(
    tmp_path: Path, write_image: WriteImage, capfd: pytest.CaptureFixture[str], suffix: str, fraction: float
) -> None:
    path = write_image(tmp_path / f"x.{suffix}", pixels=np.arange(4800, dtype=np.uint8).reshape(40, 40, 3))
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * fraction)])
    with pytest.raises(ValueError, match=rf"x\.{suffix}: damaged, or no image") as caught:
        read_image(path)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_what_is_missing_or_damaged_in_a_zip_is_named(tmp_path: Path, tree: Path) -> None:
    archive = tmp_path / "x.zip"
    with zipfile.ZipFile(archive, "w") as into:
        into.write(tree / "b/2.tif", "2.tif")
    with pytest.raises(ValueError, match=r"x\.zip/3\.tif: no such file"):
        read_image(archive / "3.tif")
    with pytest.raises(ValueError, match=r"x\.zip/none: no such folder in the zip"):
        list_images(archive / "none")
    content = bytearray(archive.read_bytes())
    content[200] ^= 255
    archive.write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.zip/2\.tif: damaged in the zip .*CRC"):
        read_image(archive / "2.tif")
    archive.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"x\.zip: not a whole zip"):
        read_image(archive / "2.tif")
    with pytest.raises(ValueError, match=r"none/2\.tif: no such file"):
        read_image(tmp_path / "none/2.tif")
    with pytest.raises(ValueError, match="no such folder"):
        list_images(tmp_path / "none")


def test_a_folder_that_is_called_like_a_zip_is_a_folder(tmp_path: Path, write_image: WriteImage) -> None:
    path = write_image(tmp_path / "odd.zip/inner.zip.d/x.png")
    assert split_archive(path) == (None, str(path))
    assert read_image(path).shape == (24, 24, 3)


def _read_in_child(path: Path, same: np.ndarray) -> None:
    if not all(np.array_equal(read_image(path), same) for _ in range(20)):
        raise AssertionError("other pixels")


def test_processes_forked_from_one_that_has_read_a_zip_read_their_own(
    tmp_path: Path, tree: Path, zipped: Callable[..., None]
) -> None:
    root = tmp_path / "packed"
    root.mkdir()
    zipped(tree, root / "data.zip")
    folder = root / "data.zip/data"
    images = {name: read_image(folder / name) for name in list_images(folder)}
    context = multiprocessing.get_context("fork")
    children = [
        context.Process(target=_read_in_child, args=(folder / name, same)) for name, same in images.items()
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * 4


def test_no_more_zips_stay_open_than_allowed(tmp_path: Path) -> None:
    pool = ArchivePool(max_open=2)
    archives = []
    for number in range(3):
        with zipfile.ZipFile(tmp_path / f"{number}.zip", "w") as into:
            into.writestr("x", str(number))
        archives.append(pool.get(tmp_path / f"{number}.zip"))
    assert [archive.fp is None for archive in archives] == [True, False, False]
    assert pool.get(tmp_path / "2.zip") is archives[2]
    assert pool.get(tmp_path / "0.zip").read("x") == b"0"


def test_the_decoder_is_as_talkative_after_an_image_as_before(
    tmp_path: Path, write_image: WriteImage
) -> None:
    before = cv2.utils.logging.getLogLevel()
    read_image(write_image(tmp_path / "x.png"))
    assert cv2.utils.logging.getLogLevel() == before
