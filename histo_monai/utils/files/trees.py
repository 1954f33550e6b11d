"""Files of a published tree, unpacked or in its zip: a path goes through a zip as if that were a folder.

`raw/kather/NCT-CRC-HE-100K.zip/NCT-CRC-HE-100K/ADI/ADI-AAAFLCLY.tif` is a member of the zip that its middle names.
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
"""Of a file that is read whole: a table, an annotation or an image; of what is in a zip, unpacked."""

MAX_IMAGE_PX = 2**26
"""Of an image, 8192 × 8192: a patch, not a slide."""

MAX_ASPECT = 1.1
"""An image may be this much longer than wide; it is read as a square."""

IMAGE_SUFFIXES = (".tif", ".tiff", ".png", ".jpg", ".jpeg")
_ABOUT_DAMAGE = re.compile("libpng error|Corrupt JPEG|Premature end")
"""What libpng and libjpeg print where they go on with pixels of their own."""

_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


class ArchivePool:
    """Keeps the zips used last open, per process, and never more than a set number; see `HandlePool`.

    A zip that changed on disk is opened anew.
    """

    def __init__(self, max_open: int) -> None:
        self._archives: HandlePool[tuple[str, int, int], zipfile.ZipFile] = HandlePool(max_open)

    def get(self, path: Path) -> zipfile.ZipFile:
        """The open zip.

        Raises:
            InputError: it is not a zip, or a damaged one.
        """
        stat = path.stat()
        try:
            return self._archives.get(
                (str(path), stat.st_mtime_ns, stat.st_size), lambda: zipfile.ZipFile(path)
            )
        except zipfile.BadZipFile as error:
            raise InputError(f"{path}: not a whole zip ({error}); copy or download it again") from None


_ARCHIVES = ArchivePool(max_open=8)


def find_tree(root: Path, name: str) -> Path:
    """Where a published folder lies: `root/name`, or `root/name.zip`, whose members may or may not begin with `name/`.

    Raises:
        InputError: it is not there, or twice: as a folder and as a zip.
    """
    folder, archive = root / name, root / f"{name}.zip"
    if folder.is_dir() and archive.is_file():
        raise InputError(f"{folder} and {archive}: the same data twice; keep one of them")
    if folder.is_dir():
        return folder
    if archive.is_file():
        return archive / name if any(_members(archive, f"{name}/")) else archive
    raise InputError(
        f"{root}: holds neither {name}/ nor {name}.zip; put the published folder or its zip here"
    )


def has_tree(root: Path, name: str) -> bool:
    """Whether `find_tree` would find something."""
    return (root / name).is_dir() or (root / f"{name}.zip").is_file()


def is_file(path: Path) -> bool:
    """Whether there is such a file, on disk or in a zip."""
    archive, member = split_archive(path)
    if archive is None:
        return path.is_file()
    return member in _ARCHIVES.get(archive).NameToInfo


def unpacked_size(path: Path) -> int:
    """Bytes of a file in a zip, as the zip gives them, before anything is unpacked.

    Raises:
        InputError: there is no such file in it.
    """
    archive, member = split_archive(path)
    info = _ARCHIVES.get(archive).NameToInfo.get(member) if archive else None
    if info is None:
        raise InputError(f"{path}: no such file")
    return info.file_size


def list_images(folder: Path) -> list[str]:
    """Images in a folder and in those below it, as paths relative to it with `/`, sorted; hidden files are left out.

    Raises:
        InputError: there is no such folder.
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


def list_folders(folder: Path) -> list[str]:
    """Names of the folders directly below a folder of disk or zip, sorted; hidden ones are left out."""
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
        InputError: there is no such file, it is no plain file, larger than `MAX_BYTES` or damaged; names it.
    """
    archive, member = split_archive(path)
    try:
        if archive is None:
            _check_num_bytes(path, check_regular(path).st_size)
            return path.read_bytes()
        opened = _ARCHIVES.get(archive)
        # What a member unpacks to is never more than it states here: zipfile stops there.
        _check_num_bytes(path, opened.getinfo(member).file_size)
        return opened.read(member)
    except (FileNotFoundError, NotADirectoryError, KeyError):
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except _DAMAGED as error:
        raise InputError(f"{path}: damaged in the zip ({error}); copy or download the zip again") from None


def _check_num_bytes(path: Path, num: int) -> None:
    if num > MAX_BYTES:
        raise InputError(
            f"{path}: {num / 2**30:.1f} GiB; no table, annotation or patch is larger than {MAX_BYTES / 2**30:g} GiB"
        )


def read_image(path: Path) -> NDArray[np.uint8]:
    """The pixels of a TIFF, PNG or JPEG, on disk or in a zip.

    Gray becomes three equal channels; what is transparent becomes white.

    Returns:
        Shape (H, W, 3), uint8, RGB.

    Raises:
        InputError: there is no such file, it is damaged or no image, has more than `MAX_IMAGE_PX` or more than 8 bits
            per channel.
    """
    data = read_bytes(path)
    size = image_size(data)
    if size is not None and size[0] * size[1] > MAX_IMAGE_PX:
        raise InputError(
            f"{path}: {size[0]} × {size[1]} px; a patch has at most {MAX_IMAGE_PX // 2**20} million pixels: "
            "name a slide in slides.csv, and squares of it"
        )
    pixels = None
    if size is not None and _is_whole(data):
        # What the decoder reports of a damaged file is raised below, in one line.
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
            f"{path}: damaged, or no image (TIFF, PNG or JPEG are read); copy or download it again"
        )
    if pixels.dtype != np.uint8:
        raise InputError(f"{path}: {pixels.dtype} per channel; save it with 8 bits per channel")
    return _as_rgb(pixels)


def _is_whole(data: bytes) -> bool:
    """False where a PNG has lost its end, of which its decoder would write to the terminal."""
    return bool(data) and (not data.startswith(b"\x89PNG") or b"IEND" in data[-64:])


def _as_rgb(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    if pixels.ndim == 2:
        return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_GRAY2RGB), dtype=np.uint8)
    if pixels.shape[2] == 4:
        alpha = pixels[..., 3:].astype(np.float32) / 255
        pixels = np.rint(pixels[..., :3] * alpha + 255 * (1 - alpha)).astype(np.uint8)
    return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB), dtype=np.uint8)


def split_archive(path: Path) -> tuple[Path | None, str]:
    """A path -> the zip it goes through, None where there is none, and the rest of it with `/`."""
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
