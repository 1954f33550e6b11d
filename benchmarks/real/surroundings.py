"""The field around a patch, twice as wide: patches of GlaS and CoNSeP were cut side by side from pictures.

A patch at the border of its picture has the mirrored patch beside it. A picture is of one patient, so that no field
shows a patient of another fold.
"""

from __future__ import annotations

import io
import itertools
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from histo_monai.finetuning.heads.features import FIELD_NAME

from .features import ColorSource, EncoderSource, Features, WithColor
from .tasks import DATASETS, RealTask, read_patches
from .unlike import Pixels, cached

PLACES = {"glas": r"(.*)_(\d+)_(\d+)\.jpg", "consep": r"(.*)_(\d)(\d)\.jpg"}
"""Dataset -> picture, row and column in the name of a patch."""
_Mosaic = dict[tuple[int, int], Pixels]


@dataclass(frozen=True)
class WithField:
    """Features of an encoder, stain histograms and features of the field beside them, as `features.field: 2`.

    Attributes:
        source: of an encoder that keeps its batch-norm statistics.
    """

    source: EncoderSource

    def digest(self, real: Path, task: RealTask, fold: int) -> str:
        """See `Source`; the encoder's digest holds the data's."""
        return f"{FIELD_NAME} beside {WithColor(self.source).digest(real, task, fold)}"

    def features(self, real: Path, cache: Path, task: RealTask, fold: int) -> Features:
        """See `Source`; of a dataset in `PLACES`."""
        found = WithColor(self.source).features(real, cache, task, fold)
        name = f"around-{task.dataset}-{ColorSource().digest(real, task, fold)[:16]}"
        return {FIELD_NAME: cached(cache, name, partial(fields, real, task), self.source.path), **found}


def fields(real: Path, task: RealTask) -> Iterator[Pixels]:
    """The square of twice the side around each patch of a table."""
    archive = real / DATASETS[task.dataset].archive
    mosaics: dict[str, _Mosaic] = {}
    places = []
    with zipfile.ZipFile(archive) as file:
        for path in read_patches(real, task)["path"]:
            name = str(Path(path).relative_to(archive))
            place = re.fullmatch(PLACES[task.dataset], name)
            if place is None:
                raise ValueError(f"{archive}: {name} states no row and column of its picture")
            picture, row, column = place.groups()
            pixels = np.asarray(Image.open(io.BytesIO(file.read(name))).convert("RGB"))
            mosaics.setdefault(picture, {})[int(row), int(column)] = pixels
            places.append((picture, int(row), int(column)))
    for picture, row, column in places:
        yield around(mosaics[picture], row, column)


def around(mosaic: _Mosaic, row: int, column: int) -> Pixels:
    """The square of twice the side around a patch of a picture; missing patches are mirrored."""
    side = mosaic[row, column].shape[0]
    wide = np.concatenate(
        [
            np.concatenate([_beside(mosaic, row, column, down, right) for right in (-1, 0, 1)], axis=1)
            for down in (-1, 0, 1)
        ]
    )
    low, high = side - side // 2, 2 * side + side // 2
    return np.ascontiguousarray(wide[low:high, low:high])


def _beside(mosaic: _Mosaic, row: int, column: int, down: int, right: int) -> NDArray[np.uint8]:
    """The patch beside another, or the mirrored nearest one."""
    for has_right, has_down in itertools.product((right, 0), (down, 0)):
        pixels = mosaic.get((row + has_down, column + has_right))
        if pixels is not None:
            pixels = pixels if has_down == down else pixels[::-1]
            return pixels if has_right == right else pixels[:, ::-1]
    raise KeyError((row, column))
