"""Features and predictions of candidates and labels from the files of the stage `features`: no patch is encoded."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.features.store import read_features
from histo_monai.data.index.candidates import Search
from histo_monai.data.tables.patch_features import PatchFeatures
from histo_monai.models.task_model import load_head
from histo_monai.pipeline import paths
from histo_monai.pipeline.context import Assembly
from histo_monai.pipeline.paths import Run
from histo_monai.pipeline.stored_features import HeadFeatures, StoredRows, predictions_of
from histo_monai.training.embedding import Embedding
from histo_monai.utils.errors import InputError
from histo_monai.utils.roles import STUDENT
from histo_monai.wsi.heatmaps.origin import slide_identity
from histo_monai.wsi.inference.head_maps import other_places
from histo_monai.wsi.inference.models import MapPlan
from histo_monai.wsi.inference.patch_features import FeatureFile

_LOG = logging.getLogger(__name__)


def stored_embeddings(
    assembly: Assembly,
    run: Run,
    search: Search,
    candidates: pd.DataFrame,
    labeled: pd.DataFrame,
) -> tuple[Embedding, Embedding] | None:
    """Features and predictions of the candidates, and of the labels, by heads on stored features.

    Args:
        run: its models' heads are loaded, without their encoders.
        search: Of the candidates.
        candidates: Rows of `sample_candidates`.
        labeled: Rows of data/index/patches.csv.

    Returns:
        None where the patches must be encoded; the log states the reason, if heads were fitted.
    """
    if assembly.params.finetune.mode != "head":
        return None
    try:
        stored = StoredRows.of_encoder(assembly.params, run.method, run.encoder)
        for path in run.models.values():
            stored.check_model(path)
        stored.check(labeled)
        of_labels, of_candidates = stored.read(labeled), _of_slides(assembly, run, stored, search, candidates)
    except InputError as error:
        _LOG.info("suggest: encoding patches, stored features do not apply: %s", error)
        return None

    heads = {name: load_head(path)[:2] for name, path in run.models.items()}

    def embedding(features: HeadFeatures, rows: pd.DataFrame) -> Embedding:
        predictions = {
            name: predictions_of(*head, assembly.task, features, rows) for name, head in heads.items()
        }
        return Embedding(features.at(rows, heads[STUDENT][1]), predictions)

    return embedding(of_candidates, candidates), embedding(of_labels, labeled)


def _of_slides(
    assembly: Assembly, run: Run, stored: StoredRows, search: Search, candidates: pd.DataFrame
) -> HeadFeatures:
    """Features of candidates, which are cells of their slides' files.

    Raises:
        InputError: A file is missing, or of another slide, encoder or plan; or it lacks a candidate.
    """
    plan = MapPlan(
        patch_px=assembly.params.input_px,
        mpp=search.mpp,
        stride_um=search.patch_px * search.mpp,
        tissue=search.tissue,
        min_tissue_fraction=search.min_tissue_fraction,
        batch_size=assembly.params.evaluate.batch_size,
    )
    folder = paths.features_folder(run.method, run.encoder)
    parts: dict[str, list[NDArray[np.float32]]] = {name: [] for name in stored.names}
    order: list[NDArray[np.int64]] = []
    for (slide_id, slide), rows in candidates.groupby(["slide_id", "path"], sort=False):
        file = folder / f"{slide_id}.h5"
        numbers = _numbers(file, plan, rows)
        slide_sha256 = slide_identity(Path(str(slide))).sample_sha256
        for name, depth in stored.names.items():
            features = read_features(
                file,
                stage=stored.stage_of(depth),
                encoder_sha256=stored.encoder_sha256,
                slide_sha256=slide_sha256,
                depth=stored.depths[-1] or 0,
            ).features
            parts[name].append(features[numbers].astype(np.float32))
        order.append(rows.index.to_numpy(np.int64))
    sorted_rows = candidates.loc[np.concatenate(order)]
    together = {name: np.concatenate(of_slides) for name, of_slides in parts.items()}
    return HeadFeatures(PatchFeatures.of_rows(sorted_rows, together), stored.names)


def _numbers(file: Path, plan: MapPlan, candidates: pd.DataFrame) -> NDArray[np.int64]:
    """Row of each candidate in the features of its slide.

    Raises:
        InputError: The file lacks a candidate, or has other patches.
    """
    with FeatureFile(file) as opened:
        if differing := other_places(opened.made_from()["settings"], plan):
            raise InputError(f"{file}: {differing}")
        grid, cells = opened.grid, opened.cells()
    wanted = np.rint(candidates[["y", "x"]].to_numpy(np.float64) / grid.downsample - 0.5).astype(np.int64)
    number_of = {cell: number for number, cell in enumerate(map(tuple, cells.tolist()))}
    numbers = np.array([number_of.get(cell, -1) for cell in map(tuple, wanted.tolist())], np.int64)
    centers = grid.centers_yx(wanted)
    if (numbers < 0).any() or not np.allclose(centers, candidates[["y", "x"]], atol=0.51):
        raise InputError(f"{file}: lacks a candidate's patch")
    return numbers
