"""Features of labeled and unlabeled patches of tables: one file per slide, and some files for image patches."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from histo_monai.data.features.store import (
    COORDS,
    FEATURES,
    PATCH_ID,
    Provenance,
    patch_names,
    write_columns,
)
from histo_monai.data.features.tables import rows_by_file, rows_sha256, source_files
from histo_monai.data.loaders.batches import EpochBatches
from histo_monai.data.loaders.loaders import patch_loader
from histo_monai.data.loaders.pixels import LabeledPatches
from histo_monai.models.encoder import Encoder
from histo_monai.slides import open_slide
from histo_monai.training.device import precision
from histo_monai.training.prediction import single_view
from histo_monai.utils.errors import InputError
from histo_monai.utils.files.hdf5 import open_hdf5
from histo_monai.utils.storage import parse_json
from histo_monai.wsi.heatmaps.origin import MADE_FROM, ORIGIN_SHAPE, Origin, Origins, numeric_settings
from histo_monai.wsi.inference.earlier_rows import (
    COORDINATES,
    PATCH_SHA256,
    earlier_features,
    patch_digests,
)
from histo_monai.wsi.inference.encoding import Dataset, Encoding
from histo_monai.wsi.inference.jobs import SlideJob
from histo_monai.wsi.inference.patch_features import ENCODER
from histo_monai.wsi.inference.slides import Advance

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableJob(SlideJob):
    """Patches of one file.

    Attributes:
        rows: Rows of a table of patches, sorted by name: all squares of the slide `path`, or images.
    """

    rows: pd.DataFrame = field(compare=False)

    @property
    def are_images(self) -> bool:
        """Whether the patches are whole images."""
        return bool(self.rows["y"].isna().any())

    def origin(self, origins: Origins) -> Origin:
        """Origin of the features, with a digest of the patches' names and places."""
        files = source_files(self.rows)
        origin = origins.of_images(files, self.models) if self.are_images else super().origin(origins)
        return replace(origin, settings={**origin.settings, COORDINATES: rows_sha256(self.rows)})


class TableFeatures(NamedTuple):
    """Features of the patches of one file.

    Attributes:
        rows: Rows of the job, each with the side of the encoder's input.
        digests: Result of `patch_digests`, Shape (n,).
        datasets: Name in the file -> features, float32, Shape (n, D_k), and attributes.
        corners_xy: Shape (n, 2), int64, upper left corners in level-0 pixels; 0 for images.
        level0_mpp: µm per level-0 pixel; None for images.
        encoder: Name of the encoder.
    """

    rows: pd.DataFrame
    digests: NDArray[np.bytes_]
    datasets: Mapping[str, Dataset]
    corners_xy: NDArray[np.int64]
    level0_mpp: float | None
    encoder: str


def table_jobs(tables: Sequence[pd.DataFrame], models: Mapping[str, Path]) -> list[TableJob]:
    """One job per features file of several tables; a patch in two tables is encoded once."""
    jobs = []
    for name, rows in rows_by_file(pd.concat(tables)).items():
        mpp = float(rows["slide_mpp"].iloc[0])
        jobs.append(TableJob(name, source_files(rows)[0], None if np.isnan(mpp) else mpp, models, rows))
    return jobs


@dataclass(frozen=True)
class TableWork:
    """Features of table patches as `SlideWork`.

    Attributes:
        patch_px: Side to which inputs are resized.
        batch_size: Patches per batch.
        encoding: Settings of the features.
        earlier: Folder of earlier files, whose patches are not encoded again.
    """

    patch_px: int
    batch_size: int
    encoding: Encoding
    earlier: Path
    suffix: ClassVar[str] = ".h5"

    def origins(self, device: torch.device) -> Origins:
        """Origins with side and batch size of the patches, and the settings of the features."""
        settings = {"patch_px": self.patch_px, "batch_size": self.batch_size}
        return Origins((), {**settings, **self.encoding.settings, **numeric_settings(device)})

    def load(self, models: Mapping[str, Path], device: torch.device) -> Encoder:
        """The encoder of a job."""
        return self.encoding.load(models[ENCODER], device)

    def look(
        self,
        job: TableJob,
        networks: Encoder,
        origin: Origin,
        *,
        device: torch.device,
        workers: int,
        advance: Advance,
    ) -> TableFeatures:
        """Features of all patches of a job; those that the earlier file holds are not encoded.

        Raises:
            InputError: A patch cannot be read, or the encoder gives NaN.
        """
        digests = patch_digests(job.rows)
        rows = job.rows.assign(side_px=job.rows["side_px"] * self.encoding.field)
        shape = (1 + len(self.encoding.views), len(rows), networks.num_features)
        features = np.empty(shape, np.float32)
        path = self.earlier / f"{job.slide_id}{self.suffix}"
        before, is_new = self.made_from(path), np.ones(len(rows), bool)
        if before is not None:
            try:
                is_held, held = earlier_features(path, before, origin, digests, self.encoding.names())
                if is_held.any():
                    features[:, is_held] = held
                is_new = ~is_held
            except (OSError, KeyError, ValueError, InputError) as error:
                _LOG.warning("features: %s is damaged (%s); all its patches are encoded again", path, error)
        new = rows[is_new].reset_index(drop=True)
        places = np.flatnonzero(is_new)
        for numbers, values in self._encoded(new, networks, device, workers):
            features[:, places[numbers]] = values
            advance(len(numbers), len(new))
        if not np.isfinite(features).all():
            raise InputError(f"{job.path}: features are not finite. Fix: run the encoder's stage again.")
        datasets = self.encoding.datasets(features, networks.widths)
        if job.are_images:
            corners = np.zeros((len(rows), 2), np.int64)
            return TableFeatures(rows, digests, datasets, corners, None, networks.name)
        with open_slide(job.path, job.mpp) as slide:
            level0_mpp = slide.mpp
        sides = (rows["side_px"] * rows["mpp"]).to_numpy() / level0_mpp
        corners = np.rint(rows[["x", "y"]].to_numpy() - sides[:, None] / 2).astype(np.int64)
        return TableFeatures(rows, digests, datasets, corners, level0_mpp, networks.name)

    def _encoded(
        self, rows: pd.DataFrame, encoder: Encoder, device: torch.device, workers: int
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Numbers of the rows of each batch, and their features, Shape (1 + number of views, n, D)."""
        if rows.empty:
            return
        dataset = LabeledPatches(rows, patch_px=self.patch_px, max_cache_bytes=0)
        order = EpochBatches(len(rows), self.batch_size, seed=None)
        loader = patch_loader(dataset, order, workers=workers, pin=device.type == "cuda")
        with torch.inference_mode(), precision(device):
            for patches, numbers in loader:
                pixels = single_view(patches, self.patch_px, device)
                yield numbers.numpy(), self.encoding.features(encoder, pixels).numpy().swapaxes(0, 1)

    def write(self, path: Path, found: TableFeatures, origin: Origin) -> None:
        """Write the HDF5 file of a job's patches (`data.features.store`).

        Raises:
            InputError: A feature is too large for float16.
        """
        sides_um = (found.rows["side_px"] * found.rows["mpp"]).to_numpy()
        is_one = found.level0_mpp is not None and bool((sides_um == sides_um[0]).all())
        mpp = float(sides_um[0]) / self.patch_px if is_one else 0.0
        provenance = Provenance(
            origin.model_sha256[ENCODER],
            origin.slide_sample_sha256,
            str(origin.settings[COORDINATES]),
            mpp,
            self.patch_px,
            self.encoding.depth,
            self.encoding.precision,
            self.encoding.code_sha256,
        )
        of_coords: dict[str, Any] = {"name": path.stem, "patch_size": self.patch_px, "patch_level": 0}
        if is_one and found.level0_mpp:
            level0 = {"level0_mpp": found.level0_mpp, "mpp": mpp}
            of_coords |= {"patch_size_level0": round(float(sides_um[0]) / found.level0_mpp), **level0}
        of_features = {
            "name": path.stem,
            "encoder": found.encoder,
            **asdict(provenance),
            MADE_FROM: json.dumps(origin.as_dict()),
        }
        datasets = self.encoding.stored(path, found.datasets)
        columns = {
            FEATURES: (datasets.pop(FEATURES).values, of_features),
            COORDS: (found.corners_xy, of_coords),
            PATCH_ID: (patch_names(found.rows["patch_id"].tolist()), {}),
            PATCH_SHA256: (found.digests, {}),
            **datasets,
        }
        write_columns(path, columns)

    def made_from(self, path: Path) -> Mapping[str, Any] | None:
        """Origin of a features file; None if it is missing or unreadable."""
        if not path.is_file():
            return None
        try:
            with open_hdf5(path) as file:
                text = file[FEATURES].attrs.get(MADE_FROM)
            return parse_json(text if isinstance(text, str) else "", str(path), "", ORIGIN_SHAPE)
        except (InputError, OSError, KeyError):
            return None
