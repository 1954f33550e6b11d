"""Slide reader for MONAI, separate from `slides/`, which needs neither torch nor MONAI."""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from histo_monai.data.loaders.wsi_levels import (
    Level,
    level_at,
    levels_of,
    mpp_of_power,
    positive,
    power_of,
    read_rectangle,
    square_mpp,
)
from histo_monai.slides import MAX_OPEN, NoResolutionError, Slide, SlideError, SlidePool
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.quiet import quiet_library

with quiet_library():  # MONAI loads nvImageCodec, which prints warnings where there is no GPU.
    from monai.data.wsi_reader import BaseWSIReader
    from monai.utils import WSIPatchKeys, dtype_torch_to_numpy


@dataclass(frozen=True)
class SlideFile:
    """A slide by path, opened when its pixels are requested, in each process.

    Attributes:
        mpp: µm per level-0 pixel if the user states it; None: from the file.
    """

    path: Path
    mpp: float | None = None


class SlideReader(BaseWSIReader):
    """Whole-slide reader for MONAI: for `reader=` of its WSI datasets, for `LoadImaged`, or by itself.

    Pixels equal `Slide.read`: of a level, or area means at any µm/px that is not finer than the slide; white outside.
    Positions are (y, x) in level-0 pixels, whole or not. Each process and thread opens slides at the first request, so
    an instance works in forked and spawned workers.

    MONAI's WSI datasets request levels, never µm/px. `mpps` gives every slide the same levels: level 0 is the file's
    own, and level k has `mpps[k - 1]`. So
    `PatchWSIDataset(data, patch_size=224, patch_level=1, reader=SlideReader(mpps=[0.5]))` reads 0.5 µm/px.

    Args:
        level: Default of `get_data`: the level,
        mpp: or µm/px,
        power: or the objective power; at most one of them. None: level 0.
        mpps: µm/px of the levels from 1 on, in any order; empty: the file's own levels.
        slide_mpp: µm per level-0 pixel of slides with a missing or wrong value: for all, or by path.
        max_open_slides: Limit of open slides per process or thread.
        dtype: Type of the pixels, numpy's or torch's; values are 0..255.
        device: Device of the pixels; None: CPU.
        mode: "RGB", or "RGBA", opaque everywhere.

    Raises:
        InputError: More than one of `level`, `mpp` and `power`, or an impossible value.
    """

    supported_suffixes = ("tif", "tiff", "svs", "ndpi", "mrxs", "scn", "bif", "vms", "vmu", "svslide")
    backend = "histo_monai"

    def __init__(
        self,
        level: int | None = None,
        mpp: float | Sequence[float] | None = None,
        power: float | None = None,
        *,
        mpps: Sequence[float] = (),
        slide_mpp: float | Mapping[str, float] | None = None,
        max_open_slides: int = MAX_OPEN,
        channel_dim: int = 0,
        dtype: DTypeLike | torch.dtype = np.uint8,
        device: torch.device | str | None = None,
        mode: str = "RGB",
    ) -> None:
        own = {name: value for name, value in (("mpp", mpp), ("power", power)) if value is not None}
        if level is not None and own:
            raise InputError(
                f"SlideReader: got level and {_and(own)}. Fix: pass one of them; {_FOR_DATASETS}."
            )
        if len(own) > 1:
            raise InputError(f"SlideReader: got {_and(own)}. Fix: pass mpp or power.")
        super().__init__(
            level=level, mpp=mpp, power=power, channel_dim=channel_dim, dtype=dtype, device=device, mode=mode
        )
        self._own: dict[str, Any] = own or {"level": level or 0}
        self.mpps = tuple(positive("mpps", value) for value in mpps)
        if isinstance(slide_mpp, Mapping):
            slide_mpp = {os.path.realpath(path): value for path, value in slide_mpp.items()}
        self.slide_mpp = slide_mpp
        self.max_open_slides = max_open_slides
        self._of_thread = threading.local()

    def read(self, data: str | Path | Sequence[str | Path], **kwargs: Any) -> SlideFile | list[SlideFile]:
        """One slide, or a list of several, not opened yet.

        Errors come with the pixels: `LoadImage` reacts to an error of `read` by trying other readers.

        Args:
            data: A path, or several.
            kwargs: Must be empty.
        """
        if kwargs:
            raise InputError(f"SlideReader.read: got {', '.join(kwargs)}. Fix: pass paths alone.")
        paths = [data] if isinstance(data, str | Path) else list(data)
        stated = self.slide_mpp
        files = [
            SlideFile(
                Path(path), stated.get(os.path.realpath(path)) if isinstance(stated, Mapping) else stated
            )
            for path in paths
        ]
        return files if len(files) > 1 else files[0]

    def get_level_count(self, wsi: SlideFile) -> int:
        """Number of levels, the file's or those of `mpps`."""
        return len(levels_of(self._slide(wsi), self.mpps))

    def get_size(self, wsi: SlideFile, level: int) -> tuple[int, int]:
        """Height and width of a level, pixels."""
        return self._level(self._slide(wsi), level).size_yx

    def get_downsample_ratio(self, wsi: SlideFile, level: int) -> float:
        """Level-0 pixels per pixel of a level."""
        return self._level(self._slide(wsi), level).downsample

    def get_mpp(self, wsi: SlideFile, level: int) -> tuple[float, float]:
        """µm per pixel of a level, along y and x."""
        mpp = self._level(self._slide(wsi), level).mpp
        return mpp, mpp

    def get_power(self, wsi: SlideFile, level: int) -> float:
        """Objective power of a level.

        Raises:
            SlideError: The file states no power.
        """
        slide = self._slide(wsi)
        return power_of(slide) / self._level(slide, level).downsample

    def get_file_path(self, wsi: SlideFile) -> str:
        """The absolute path of the file."""
        return str(wsi.path.absolute())

    def get_data(
        self,
        wsi: SlideFile | list[SlideFile] | tuple[SlideFile, ...],
        location: Sequence[float] | None = (0, 0),
        size: Sequence[int] | None = None,
        level: int | None = None,
        mpp: float | Sequence[float] | None = None,
        power: float | None = None,
        mode: str | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """The pixels and metadata of a rectangle.

        Args:
            wsi: Result of `read`; patches of several slides are concatenated along the color axis.
            location: Corner (y, x), level-0 pixels; may lie outside the slide.
            size: Height and width in pixels of the result; None: the whole slide.
            level: One of the levels,
            mpp: or any µm/px,
            power: or any objective power; at most one of them. None: the reader's default.
            mode: "RGB" or "RGBA"; None: the reader's.

        Returns:
            Pixels (3, height, width), colors along `channel_dim`, and the metadata of MONAI's readers (path, location,
            size, level, ...) with `mpp`. For other µm/px than a level's, `level` is the source level.

        Raises:
            InputError: Unknown level; more than one of `level`, `mpp` and `power`; a level from a reader made for
                `mpp` or `power`; or a corner without a size.
            SlideError: The slide cannot be read, is coarser than requested, or states no objective power.
        """
        mode = mode or self.mode
        if mode not in ("RGB", "RGBA"):
            raise InputError(f"mode: got {mode!r}. Fix: pass RGB or RGBA.")
        corner = (0.0, 0.0) if location is None else (float(location[0]), float(location[1]))
        if size is None and corner != (0.0, 0.0):
            raise InputError(f"size: a patch at {location} needs a size. Fix: pass one, or no location.")
        given: dict[str, Any] = {"level": level, "mpp": mpp, "power": power}
        asked = {name: value for name, value in given.items() if value is not None}
        files = list(wsi) if isinstance(wsi, list | tuple) else [wsi]
        found = [self._get_one(file, corner, size, asked, mode) for file in files]
        patches, metadata = [patch for patch, _ in found], found[-1][1]
        if len(found) == 1:
            return patches[0], metadata
        if len({tuple(about["spatial_shape"]) for _, about in found}) > 1:
            raise InputError("slides of several sizes cannot be concatenated whole. Fix: give a size.")
        metadata |= {key.value: [about[key.value] for _, about in found] for key in WSIPatchKeys}
        join: Any = torch.cat if isinstance(patches[0], torch.Tensor) else np.concatenate
        return join(patches, metadata["original_channel_dim"]), metadata

    def _get_one(
        self,
        file: SlideFile,
        corner_yx: tuple[float, float],
        size: Sequence[int] | None,
        asked: dict[str, Any],
        mode: str,
    ) -> tuple[Any, dict[str, Any]]:
        slide = self._slide(file)
        level, number = self._asked(slide, asked)
        size_yx = level.size_yx if size is None else (int(size[0]), int(size[1]))
        if min(size_yx) < 1:
            raise InputError(f"size: got {size_yx}. Fix: pass at least 1 x 1 px.")
        is_torch = isinstance(self.dtype, torch.dtype)
        dtype = dtype_torch_to_numpy(self.dtype) if is_torch else self.dtype
        patch: Any = self._pixels(slide, corner_yx, size_yx, level, dtype, mode)
        if is_torch or (self.device is not None and torch.device(self.device).type == "cuda"):
            patch = torch.as_tensor(patch, device=self.device)
        metadata = self._get_metadata(file, patch, location=corner_yx, size=size_yx, level=number)
        return patch, metadata | {"mpp": level.mpp}

    def _get_patch(
        self,
        wsi: SlideFile,
        location: tuple[int, int],
        size: tuple[int, int],
        level: int,
        dtype: DTypeLike,
        mode: str,
    ) -> NDArray[Any]:
        """A patch by its level, for MONAI's base class."""
        slide = self._slide(wsi)
        return self._pixels(slide, location, size, self._level(slide, level), dtype, mode)

    def _pixels(
        self,
        slide: Slide,
        corner_yx: tuple[float, float],
        size_yx: tuple[int, int],
        level: Level,
        dtype: DTypeLike,
        mode: str,
    ) -> NDArray[Any]:
        patch: NDArray[Any] = read_rectangle(slide, corner_yx, size_yx, level)
        if mode == "RGBA":
            patch = np.concatenate([patch, np.full((1, *size_yx), 255, np.uint8)])
        return np.moveaxis(patch, 0, self.channel_dim).astype(dtype, copy=False)

    def _level(self, slide: Slide, number: int) -> Level:
        levels = levels_of(slide, self.mpps)
        if not 0 <= operator.index(number) < len(levels):
            has = ", ".join(f"{level.mpp:.4g}" for level in levels)
            raise SlideError(
                slide.path,
                f"level {number} does not exist. Fix: use a level from 0 on; they have {has} µm/px.",
            )
        return levels[number]

    def _asked(self, slide: Slide, asked: dict[str, Any]) -> tuple[Level, int]:
        """The level to read, and its number for the metadata."""
        if len(asked) > 1:
            raise InputError(f"get_data: got {_and(asked)}. Fix: pass one of level, mpp and power.")
        if "level" in asked and "level" not in self._own:
            raise InputError(
                f"the reader was made for {_and(self._own)} and is asked for level {asked['level']}. Fix: "
                + _FOR_DATASETS
            )
        ((name, value),) = (asked or self._own).items()
        if name == "level":
            return self._level(slide, value), int(value)
        level = level_at(slide, square_mpp(value) if name == "mpp" else mpp_of_power(slide, value))
        return level, slide.level_for(level.mpp)

    def _slide(self, file: SlideFile) -> Slide:
        if not hasattr(self._of_thread, "pool"):
            self._of_thread.pool = SlidePool(self.max_open_slides)
        try:
            return self._of_thread.pool.get(file.path, file.mpp)
        except NoResolutionError:
            raise NoResolutionError(
                file.path, "states no resolution. Fix: give SlideReader its slide_mpp (µm per level-0 pixel)."
            ) from None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_of_thread"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _of_thread=threading.local())


_FOR_DATASETS = (
    "MONAI's WSI datasets always ask for a level: give SlideReader mpps=[...], whose levels count from 1"
)


def _and(given: Mapping[str, Any]) -> str:
    return " and ".join(f"{name} {value}" for name, value in given.items())
