"""`suggest --first`: typical squares of the tissue, before there is a model or a label."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from histo_monai.data.loaders.labeled import PatchReading
from histo_monai.data.tables.patches import read_patches
from histo_monai.models.task_model import load_encoder
from histo_monai.pipeline import paths
from histo_monai.pipeline.environment import Environment, read_environment
from histo_monai.pipeline.params import Params
from histo_monai.pipeline.provenance import check_slides
from histo_monai.pipeline.suggestions.search import candidates_of, search_of
from histo_monai.pipeline.suggestions.squares import (
    bounds_corners,
    fields,
    most_per_slide,
    places,
    taken,
    write_suggestions,
)
from histo_monai.reports.suggestions import MAX_SHOWN
from histo_monai.training.device import precision
from histo_monai.training.prediction import single_view
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.progress import progress
from histo_monai.wsi.inference.encoding import Encoding
from histo_monai.wsi.typical import MOST_CANDIDATES, choose_typical, similar_groups

_BATCH = 64


def encoder_file(params: Params, method: str | None, seed: int | None) -> Path:
    """The encoder of a pretraining; the only one of params.yaml if none is named.

    Raises:
        InputError: params.yaml has several and none is named, or it has not been made.
    """
    known = [(name, number) for name in params.pretraining_methods for number in params.pretraining_seeds]
    asked = [(name, number) for name, number in known if method in (None, name) and seed in (None, number)]
    if len(asked) != 1:
        names = ", ".join(f"--method {name} --pretraining-seed {number}" for name, number in known)
        raise InputError(f"suggest --first: {len(asked)} encoders fit. Fix: name one of {names}")
    path = paths.encoder_folder(*asked[0]) / "encoder.safetensors"
    if not path.is_file():
        raise InputError(f"{path}: not found. Fix: run `dvc repro pretrain`")
    return path


def suggest_first(draft: Path, params: Params, encoder: Path, num: int, side_um: float | None) -> str:
    """Write the files of `suggest`; a one-line summary.

    Raises:
        InputError: A file cannot be used, or no slide has tissue.
    """
    environment = read_environment()
    environment.use_cpus()
    patches = read_patches(paths.PATCHES_CSV)
    search = search_of(params, patches, side_um)
    candidates = candidates_of(
        params, patches, search, seed=params.index.seed, processes=environment.cpus, most=MOST_CANDIDATES
    )
    labeled = patches[patches["split"] == "train"]
    check_slides([candidates, patches])
    squares = fields(candidates.assign(mpp=search.side_um / candidates["side_px"]))
    rows = candidates[squares.apart_from(fields(taken(patches, candidates)))].reset_index(drop=True)
    if rows.empty:
        raise InputError(f"suggest: all {len(candidates)} candidates are labeled. Fix: add slides")
    features, labeled_features = encoded([rows, labeled], encoder, environment)
    chosen = choose_typical(
        features,
        num,
        seed=params.index.seed,
        labeled_features=labeled_features,
        fields=fields(rows.assign(mpp=search.side_um / rows["side_px"])),
        most_per_slide=most_per_slide(num, rows["slide_id"].nunique()),
    )
    rows = rows.iloc[chosen].reset_index(drop=True)
    reading = PatchReading(search.patch_px, None, 0, environment.device)
    shown, _ = reading.in_order(rows[:MAX_SHOWN], _BATCH).some(MAX_SHOWN)
    table = pd.DataFrame(places(rows, search.side_um)).assign(cluster=similar_groups(features[chosen]))
    pictures = (shown.squeeze(1).numpy(), [""] * len(table), [search.patch_px * search.mpp] * len(table))
    write_suggestions(draft, table, bounds_corners(rows), {}, pictures)
    return (
        f"{len(table)} typical regions on {table['slide_id'].nunique()} of {candidates['slide_id'].nunique()} slides "
        f"with {len(candidates)} candidates"
    )


def encoded(tables: list[pd.DataFrame], encoder: Path, environment: Environment) -> list[NDArray[np.float32]]:
    """Features of the patches of each table, Shape (n, D)."""
    device = environment.device
    network, about = load_encoder(encoder)
    side = int(about["patch_px"])
    encoding = Encoding()
    network = encoding.ready(network, device)
    reading = PatchReading(side, None, environment.workers, device)
    features = []
    for table in tables:
        parts = [np.zeros((0, network.num_features), np.float32)]
        bare = table.reset_index(drop=True).assign(label="", score=np.nan)
        loader = reading.in_order(bare, _BATCH).loader if len(bare) else ()
        for patches, _ in progress(loader, title="patches", unit="batch"):
            with torch.inference_mode(), precision(device):
                parts.append(encoding.features(network, single_view(patches, side, device))[:, 0].numpy())
        features.append(np.concatenate(parts))
    return features
