"""Tiles decoded by nvImageCodec: by the GPU's JPEG engines, nvJPEG2000, or libjpeg-turbo.

The engines give the pixels of libjpeg-turbo (chroma upsampled by interpolation) within 1 of 255 levels. nvJPEG's CUDA
decoder, for GPUs without such engines, differs by up to 3 levels in 2e-5 of the values.
"""

from __future__ import annotations

import contextlib
import functools
import io
import queue
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from histo_monai.slides.tiff import JPEG, JPEG2000, Page
from histo_monai.utils.process.quiet import quiet_library

_RGB, _YCBCR = 2, 6
_JPEG2000_RGB = 33005
_ADOBE = b"\xff\xee\x00\x0eAdobe"
"""Begin of a segment that states colors; the CPU's decoders take them from the TIFF."""
_START, _END = b"\xff\xd8", b"\xff\xd9"
_CPU_THREADS = 4
"""Of a decoder: they prepare what the GPU decodes."""
_PAD_BYTES = 16
"""Some writers pad tiles by a few bytes after the end marker."""


class TileCodec(Protocol):
    """Decodes tiles to a device."""

    def reads(self, page: Page) -> bool:
        """Whether tiles of a page can be decoded."""
        ...

    def decode(self, page: Page, tiles: Sequence[bytes]) -> list[torch.Tensor | None]:
        """Tiles, shape (3, *tile_yx), uint8, RGB, on the device; None for a tile that another decoder must read."""
        ...


def jpeg_stream(tables: bytes, tile: bytes) -> bytes:
    """A whole JPEG from the common tables of a page and a tile.

    Args:
        tables: As in the TIFF, from its start marker to its end marker; empty if each tile has its own.
    """
    return _START + tables[2 : tables.rfind(_END)] + tile[2:] if tables else tile


def is_plain_jpeg(tile: bytes) -> bool:
    """Whether a JPEG ends with its end marker and leaves its colors to the TIFF.

    libjpeg-turbo warns of a JPEG that is cut off; the GPU's engines do not.
    """
    return _END in tile[-_PAD_BYTES - len(_END) :] and _ADOBE not in tile


class NvImageCodec:
    """`TileCodec` of a GPU.

    Args:
        device: The GPU.
        has_engines: Whether it has JPEG engines.
    """

    def __init__(self, device: torch.device, *, has_engines: bool) -> None:
        nv = _library()
        kinds = nv.BackendKind
        self._jpeg = [kinds.HW_GPU_ONLY if has_engines else kinds.HYBRID_CPU_GPU]
        self._any = [*self._jpeg, kinds.GPU_ONLY, kinds.CPU_ONLY]
        self._device = device
        self._idle: dict[bool, queue.SimpleQueue[tuple[Any, torch.cuda.Stream]]] = {
            is_raw: queue.SimpleQueue() for is_raw in (False, True)
        }
        rgb = {"apply_exif_orientation": False, "color_spec": nv.ColorSpec.SRGB}
        raw = {"apply_exif_orientation": False, "color_spec": nv.ColorSpec.UNCHANGED}
        self._params = {
            False: nv.DecodeParams(**rgb, sample_format=nv.SampleFormat.P_RGB),
            True: nv.DecodeParams(**raw, sample_format=nv.SampleFormat.P_UNCHANGED),
        }

    def reads(self, page: Page) -> bool:
        """Whether tiles of a page can be decoded: JPEG, and JPEG 2000 in RGB."""
        if page.num_channels != 3 or page.bits != 8 or _ADOBE in page.jpeg_tables:
            return False
        if page.compression in JPEG2000:
            return (page.compression, page.photometric) == (_JPEG2000_RGB, _RGB)
        return page.compression == JPEG and page.photometric in (_RGB, _YCBCR)

    def decode(self, page: Page, tiles: Sequence[bytes]) -> list[torch.Tensor | None]:
        """`TileCodec.decode`."""
        is_jpeg = page.compression == JPEG
        which = [number for number, tile in enumerate(tiles) if not is_jpeg or is_plain_jpeg(tile)]
        streams = [
            jpeg_stream(page.jpeg_tables, tiles[number]) if is_jpeg else tiles[number] for number in which
        ]
        # Aperio stores RGB in JPEG without stating so in the JPEG itself.
        images = self._images(streams, is_raw=is_jpeg and page.photometric == _RGB)
        found: list[torch.Tensor | None] = [None] * len(tiles)
        for number, image in zip(which, images, strict=True):
            if image is not None and tuple(image.shape) == (3, *page.tile_yx):
                found[number] = torch.utils.dlpack.from_dlpack(image.to_dlpack())
        return found

    def _images(self, streams: Sequence[bytes], *, is_raw: bool) -> list[Any]:
        """Decoded by a decoder that no other thread uses; the caller's stream waits for them.

        Args:
            is_raw: Planes as they are stored; libjpeg-turbo would convert them.
        """
        if not streams:
            return []
        try:
            decoder, own = self._idle[is_raw].get_nowait()
        except queue.Empty:
            decoder = _decoder(self._device, self._jpeg if is_raw else self._any)
            own = torch.cuda.Stream(self._device)
        codes = [_library().CodeStream(stream) for stream in streams]
        images = decoder.decode(codes, params=self._params[is_raw], cuda_stream=own.cuda_stream)
        torch.cuda.current_stream(self._device).wait_stream(own)
        self._idle[is_raw].put((decoder, own))
        return list(images)


def find_codec(device: torch.device) -> tuple[NvImageCodec | None, str]:
    """The codec of a GPU, and what it decodes with; or None, and why there is none."""
    try:
        kinds = _library().BackendKind
    except ImportError as error:
        return None, f"nvImageCodec cannot be loaded ({error})"
    with quiet_library():  # It prints an error for each decoder whose library is missing.
        for kind, name in (
            (kinds.HW_GPU_ONLY, "JPEG engines"),
            (kinds.HYBRID_CPU_GPU, "nvJPEG's CUDA decoder"),
        ):
            image = None
            with contextlib.suppress(RuntimeError):
                (image,) = _decoder(device, [kind]).decode([_library().CodeStream(_probe())])
            if image is not None:
                return NvImageCodec(device, has_engines=kind == kinds.HW_GPU_ONLY), name
    return None, "nvJPEG is missing (pip install nvidia-nvjpeg)"


def _decoder(device: torch.device, kinds: Sequence[Any]) -> Any:
    nv = _library()
    index = torch.cuda.current_device() if device.index is None else device.index
    backends = [nv.Backend(kind) for kind in kinds]
    return nv.Decoder(
        device_id=index, max_num_cpu_threads=_CPU_THREADS, backends=backends, options=":fancy_upsampling=1"
    )


@functools.cache
def _library() -> Any:
    with quiet_library():
        from nvidia import nvimgcodec
    return nvimgcodec


@functools.cache
def _probe() -> bytes:
    """A JPEG of 64 x 64 px with halved chroma."""
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (64, 64), (128, 128, 128)).save(file, "JPEG", subsampling="4:2:0")
    return file.getvalue()
