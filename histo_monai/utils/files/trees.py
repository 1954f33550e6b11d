"""Files of a published tree, unpacked or inside its zip: paths treat a zip as a folder.

`raw/kather/NCT-CRC-HE-100K.zip/NCT-CRC-HE-100K/ADI/ADI-AAAFLCLY.tif` names a member of that zip.
"""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from histo_monai.utils.errors import InputError
from histo_monai.utils.files.image_header import image_size
from histo_monai.utils.process.complaints import Complaints
from histo_monai.utils.storage.handles import HandlePool
from histo_monai.utils.storage.reading import check_regular

MAX_BYTES = 2**30
"""Largest table, annotation or image that is read whole, unpacked bytes."""

MAX_IMAGE_PX = 2**26
"""Largest image, 8192 × 8192: a patch, not a slide."""

MAX_ASPECT = 1.1
"""Largest ratio of an image's sides; it is read as a square."""

IMAGE_SUFFIXES = (".tif", ".tiff", ".png", ".jpg", ".jpeg")
_ABOUT_DAMAGE = re.compile("libpng error|Corrupt JPEG|Premature end")
"""Warnings of libpng and libjpeg when they invent pixels."""

_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


class ArchivePool:
    """Open zips, per process; closes the least recently used and reopens a changed zip (`HandlePool`)."""

    def __init__(self, max_open: int) -> None:
        self._archives: HandlePool[tuple[str, int, int], zipfile.ZipFile] = HandlePool(max_open)

    def get(self, path: Path) -> zipfile.ZipFile:
        """The open zip.

        Raises:
            InputError: The file is no zip, or a damaged one.
        """
        stat = path.stat()
        try:
            return self._archives.get(
                (str(path), stat.st_mtime_ns, stat.st_size), lambda: zipfile.ZipFile(path)
            )
        except zipfile.BadZipFile as error:
            raise InputError(f"{path}: not a whole zip ({error}). Fix: copy or download it again.") from None


_ARCHIVES = ArchivePool(max_open=8)


def find_tree(root: Path, name: str) -> Path:
    """Path of a published folder: `root/name`, or `root/name.zip`, whose members may begin with `name/`.

    Raises:
        InputError: The folder is missing, or exists twice, as folder and zip.
    """
    folder, archive = root / name, root / f"{name}.zip"
    if folder.is_dir() and archive.is_file():
        raise InputError(f"{folder} and {archive}: the same data twice. Fix: remove one of them.")
    if folder.is_dir():
        return folder
    if archive.is_file():
        return archive / name if any(_members(archive, f"{name}/")) else archive
    raise InputError(
        f"{root}: holds neither {name}/ nor {name}.zip. Fix: put the published folder or its zip here."
    )


def has_tree(root: Path, name: str) -> bool:
    """Whether the published folder or its zip exists."""
    return (root / name).is_dir() or (root / f"{name}.zip").is_file()


def is_file(path: Path) -> bool:
    """Whether a file exists, on disk or in a zip."""
    archive, member = split_archive(path)
    if archive is None:
        return path.is_file()
    return member in _ARCHIVES.get(archive).NameToInfo


def unpacked_size(path: Path) -> int:
    """Unpacked bytes of a file in a zip, from the zip's directory.

    Raises:
        InputError: The zip has no such file.
    """
    archive, member = split_archive(path)
    info = _ARCHIVES.get(archive).NameToInfo.get(member) if archive else None
    if info is None:
        raise InputError(f"{path}: no such file")
    return info.file_size


def list_images(folder: Path) -> list[str]:
    """Paths of the images in a folder tree, relative with `/`, sorted, without hidden files.

    Raises:
        InputError: The folder does not exist.
    """
    archive, member = split_archive(folder)
    if archive is None:
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder")
        below = _files_below(folder)
    else:
        prefix = f"{member}/" if member else ""
        names = list(_members(archive, prefix))
        if not names:
            raise InputError(f"{folder}: no such folder in the zip")
        below = (name.removeprefix(prefix) for name in names)
    return sorted(name for name in below if name.lower().endswith(IMAGE_SUFFIXES) and not _is_hidden(name))


def files_below(folder: Path) -> list[Path]:
    """Files in a folder on disk and in all folders below it, links to folders too, sorted."""
    return sorted(folder / name for name in _files_below(folder))


def list_folders(folder: Path) -> list[str]:
    """Names of the folders directly below a folder on disk or in a zip, sorted, without hidden ones."""
    archive, member = split_archive(folder)
    if archive is None:
        folders = {entry.name for entry in os.scandir(folder) if entry.is_dir()}
    else:
        prefix = f"{member}/" if member else ""
        inside = (name.removeprefix(prefix).split("/") for name in _members(archive, prefix))
        folders = {parts[0] for parts in inside if len(parts) > 1}
    return sorted(name for name in folders if not _is_hidden(name))


def read_bytes(path: Path) -> bytes:
    """The content of a file.

    Raises:
        InputError: The file is missing, irregular, larger than `MAX_BYTES` or damaged; the message names it.
    """
    archive, member = split_archive(path)
    try:
        if archive is None:
            _check_num_bytes(path, check_regular(path).st_size)
            return path.read_bytes()
        opened = _ARCHIVES.get(archive)
        # zipfile never unpacks more than the stated size.
        _check_num_bytes(path, opened.getinfo(member).file_size)
        return opened.read(member)
    except (FileNotFoundError, NotADirectoryError, KeyError):
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except _DAMAGED as error:
        raise InputError(
            f"{path}: damaged in the zip ({error}). Fix: copy or download the zip again."
        ) from None


def _check_num_bytes(path: Path, num: int) -> None:
    if num > MAX_BYTES:
        raise InputError(
            f"{path}: {num / 2**30:.1f} GiB. Fix: use a file of at most {MAX_BYTES / 2**30:g} GiB."
        )


def read_image(path: Path) -> NDArray[np.uint8]:
    """The pixels of a TIFF, PNG or JPEG, on disk or in a zip, shape (H, W, 3), uint8, RGB.

    Gray becomes three equal channels; transparent areas become white.

    Raises:
        InputError: The file is missing, damaged or no image, or has more than `MAX_IMAGE_PX` or 8 bits per channel.
    """
    data = read_bytes(path)
    size = image_size(data)
    if size is not None and size[0] * size[1] > MAX_IMAGE_PX:
        raise InputError(
            f"{path}: {size[0]} × {size[1]} px; a patch has at most {MAX_IMAGE_PX // 2**20} million pixels. "
            "Fix: name the slide in slides.csv, and squares of it."
        )
    pixels = None
    if size is not None and _is_whole(data):
        # The decoder's report of damage is raised below, in one line.
        level = cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
        try:
            with Complaints() as complaints:
                pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
            if _ABOUT_DAMAGE.search(complaints.text):
                pixels = None
        except cv2.error:
            pixels = None
        finally:
            cv2.utils.logging.setLogLevel(level)
    if pixels is None:
        raise InputError(
            f"{path}: damaged, or no image (TIFF, PNG or JPEG are read). Fix: copy or download it again."
        )
    if pixels.dtype != np.uint8:
        raise InputError(f"{path}: {pixels.dtype} per channel. Fix: save it with 8 bits per channel.")
    return _as_rgb(pixels)


def _is_whole(data: bytes) -> bool:
    """Whether the data are complete; the decoder would print about a PNG without its end."""
    return bool(data) and (not data.startswith(b"\x89PNG") or b"IEND" in data[-64:])


def _as_rgb(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    if pixels.ndim == 2:
        return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_GRAY2RGB), dtype=np.uint8)
    if pixels.shape[2] == 4:
        alpha = pixels[..., 3:].astype(np.float32) / 255
        pixels = np.rint(pixels[..., :3] * alpha + 255 * (1 - alpha)).astype(np.uint8)
    return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB), dtype=np.uint8)


def split_archive(path: Path) -> tuple[Path | None, str]:
    """The zip in a path (None without one), and the rest of the path with `/`."""
    text = path.as_posix()
    end = text.lower().find(".zip")
    while end >= 0:
        end += len(".zip")
        if (end == len(text) or text[end] == "/") and os.path.isfile(text[:end]):
            return Path(text[:end]), text[end + 1 :]
        end = text.lower().find(".zip", end)
    return None, text


def _members(archive: Path, prefix: str) -> Iterator[str]:
    return (name for name in _ARCHIVES.get(archive).namelist() if name.startswith(prefix))


def _files_below(folder: Path) -> Iterator[str]:
    for where, _, names in os.walk(folder, followlinks=True):
        relative = os.path.relpath(where, folder)
        prefix = "" if relative == "." else relative.replace(os.sep, "/") + "/"
        yield from (prefix + name for name in names)


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))
