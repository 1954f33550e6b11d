"""Decoders for tests of decoding on a device: Pillow stands in where there is no GPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from histo_monai.data.decoding.choice import tile_store
from histo_monai.data.decoding.codec import is_plain_jpeg
from histo_monai.data.decoding.tile_store import TileStore
from histo_monai.slides import Slide, open_slide
from histo_monai.slides.tiff import JPEG, JPEG2000, Page
from histo_monai.slides.tiff.decode import decode_tile

MPP_OF_SILENT = {"lymph-node.tif": 0.25, "tcga-cr-7395-01a-01-ts1.svs": 0.5}
"""µm/px of real slides that state none."""


class PillowCodec:
    """Decodes every second tile of a call and leaves the others to the CPU, so that both ways are taken.

    Attributes:
        num_tiles: Tiles that it was given.
    """

    def __init__(self) -> None:
        self.num_tiles = 0

    def reads(self, page: Page) -> bool:
        return page.compression in (JPEG, *JPEG2000)

    def decode(self, page: Page, tiles: Sequence[bytes]) -> list[torch.Tensor | None]:
        self.num_tiles += len(tiles)
        return [None if number % 2 else _pixels(page, tile) for number, tile in enumerate(tiles)]


def _pixels(page: Page, tile: bytes) -> torch.Tensor | None:
    if page.compression == JPEG and not is_plain_jpeg(tile):
        return None
    try:
        return torch.from_numpy(decode_tile(page, tile).copy()).permute(2, 0, 1)
    except (OSError, ValueError, SyntaxError):
        return None


def store_on(device: torch.device, max_bytes: int | None = None) -> TileStore:
    """A store without tiles: with the GPU's decoder, or with Pillow."""
    found = tile_store(device) if device.type == "cuda" else None
    if device.type == "cuda" and found is None:
        raise AssertionError("this GPU decodes no JPEG")
    return TileStore(PillowCodec() if found is None else found.codec, device, max_bytes)


def opened(path: Path) -> Slide:
    """A real slide, with its µm/px where the file states none."""
    return open_slide(path, MPP_OF_SILENT.get(path.name, 1.0 if path.parent.name == "atlas" else None))
