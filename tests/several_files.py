"""Slides of several files, drawn: Hamamatsu's VMS, DICOM, and the layout of MIRAX."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

WSI_STORAGE, JPEG_BASELINE = "1.2.840.10008.5.1.4.1.1.77.1.6", "1.2.840.10008.1.2.4.50"

Pixels = NDArray[np.uint8]


def jpeg(pixels: Pixels) -> bytes:
    """With a restart marker after every row of 8 x 8 blocks, as OpenSlide asks of Hamamatsu's."""
    content = io.BytesIO()
    each = -(-pixels.shape[1] // 8)
    Image.fromarray(pixels).save(content, "JPEG", quality=95, subsampling=0, restart_marker_blocks=each)
    return content.getvalue()


def write_vms(path: Path, pixels: Pixels, mpp: float = 1.0) -> tuple[Path, ...]:
    """`path` (.vms), and beside it its image, map, macro and table of offsets; in the order of their names."""
    height, width = pixels.shape[:2]
    stem = path.stem
    beside = {
        f"{stem}.jpg": jpeg(pixels),
        f"{stem}.opt": b"",
        f"{stem}_macro.jpg": jpeg(pixels[::8, ::8]),
        f"{stem}_map.jpg": jpeg(pixels[::8, ::8]),
    }
    for name, content in beside.items():
        path.with_name(name).write_bytes(content)
    lines = [
        *("[Virtual Microscope Specimen]", "NoLayers=1", "NoJpegColumns=1", "NoJpegRows=1"),
        *(f"ImageFile={stem}.jpg", f"MapFile={stem}_map.jpg", f"MacroImage={stem}_macro.jpg"),
        f"OptimisationFile={stem}.opt",
        *(f"PhysicalWidth={round(width * mpp * 1000)}", f"PhysicalHeight={round(height * mpp * 1000)}"),
        *("LayerSpacing=1", "LayerOffset=0", "SourceLens=10"),
    ]
    path.write_text("\n".join(lines) + "\n")
    return tuple(path.with_name(name) for name in beside)


def write_dicom(folder: Path, pixels: Pixels, mpp: float = 1.0, series: str = "1.2.9") -> tuple[Path, ...]:
    """`folder`/0.dcm and 1.dcm, two levels of a series."""
    paths = (folder / "0.dcm", folder / "1.dcm")
    for number, path in enumerate(paths):
        step = 2**number
        level = np.ascontiguousarray(pixels[::step, ::step])
        path.write_bytes(instance(level, mpp * step, series, f"{series}.{number}"))
    return paths


def instance(pixels: Pixels, mpp: float, series: str, uid: str, tile_px: int = 256) -> bytes:
    """A level of a whole slide in DICOM, explicit VR, tiles in JPEG."""
    height, width = pixels.shape[:2]
    frames = [
        _frame(pixels[y : y + tile_px, x : x + tile_px], tile_px)
        for y in range(0, height, tile_px)
        for x in range(0, width, tile_px)
    ]
    meta = b"".join(
        [
            _element(2, 1, "OB", b"\0\1"),
            *(
                _element(2, tag, "UI", value)
                for tag, value in ((2, WSI_STORAGE), (3, uid), (16, JPEG_BASELINE))
            ),
            _element(2, 18, "UI", "1.2.3"),
        ]
    )
    spacing = _element(0x28, 0x30, "DS", f"{mpp / 1000}\\{mpp / 1000}")
    shared = _sequence(0x28, 0x9110, spacing) + _sequence(0x48, 0x105, b"")
    body = b"".join(
        [
            _element(8, 8, "CS", "ORIGINAL\\PRIMARY\\VOLUME\\NONE"),
            *(_element(8, tag, "UI", value) for tag, value in ((0x16, WSI_STORAGE), (0x18, uid))),
            _element(8, 0x60, "CS", "SM"),
            *(_element(0x20, tag, "UI", value) for tag, value in ((0xD, "1.2.3.4"), (0xE, series))),
            *(_element(0x20, 0x13, "IS", "1"), _element(0x20, 0x9311, "CS", "TILED_FULL")),
            *(_short(0x28, 2, 3), _element(0x28, 4, "CS", "YBR_FULL_422"), _short(0x28, 6, 0)),
            *(
                _element(0x28, 8, "IS", str(len(frames))),
                _short(0x28, 0x10, tile_px),
                _short(0x28, 0x11, tile_px),
            ),
            *(_short(0x28, tag, bits) for tag, bits in ((0x100, 8), (0x101, 8), (0x102, 7), (0x103, 0))),
            *(_element(0x48, tag, "UL", struct.pack("<I", side)) for tag, side in ((6, width), (7, height))),
            _sequence(0x5200, 0x9229, shared),
        ]
    )
    offsets = np.cumsum([0, *(8 + len(frame) for frame in frames)])[:-1].astype("<u4").tobytes()
    items = b"".join(_item(content) for content in (offsets, *frames))
    image = (
        struct.pack("<HH2sHI", 0x7FE0, 0x10, b"OB", 0, 0xFFFFFFFF)
        + items
        + struct.pack("<HHI", 0xFFFE, 0xE0DD, 0)
    )
    size = _element(2, 0, "UL", struct.pack("<I", len(meta)))
    return b"\0" * 128 + b"DICM" + size + meta + body + image


def write_mirax_layout(
    path: Path, names: Sequence[str] = ("Data0000.dat", "Index.dat", "Slidedat.ini")
) -> list[Path]:
    """`path` (.mrxs) and the folder beside it, with files of these names that hold no image."""
    path.write_bytes(b"mrxs")
    folder = path.with_suffix("")
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes(name.encode())
    return [folder / name for name in sorted(names)]


def _frame(pixels: Pixels, side: int) -> bytes:
    tile = np.full((side, side, 3), 255, np.uint8)
    tile[: pixels.shape[0], : pixels.shape[1]] = pixels
    content = io.BytesIO()
    Image.fromarray(tile).save(content, "JPEG", quality=95, subsampling=0)
    data = content.getvalue()
    return data + b"\0" * (len(data) % 2)


def _item(content: bytes) -> bytes:
    return struct.pack("<HHI", 0xFFFE, 0xE000, len(content)) + content


def _element(group: int, tag: int, kind: str, value: str | bytes) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    content += (b"\0" if kind in ("UI", "OB") else b" ") * (len(content) % 2)
    size = struct.pack("<HI", 0, len(content)) if kind in ("OB", "SQ") else struct.pack("<H", len(content))
    return struct.pack("<HH", group, tag) + kind.encode() + size + content


def _short(group: int, tag: int, value: int) -> bytes:
    return _element(group, tag, "US", struct.pack("<H", value))


def _sequence(group: int, tag: int, content: bytes) -> bytes:
    return _element(group, tag, "SQ", _item(content))
