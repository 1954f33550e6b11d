"""A small archive of patches in the layout of GlaS, for tests of `benchmarks.real`."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from benchmarks.real import encoders
from benchmarks.real.jobs import Bench
from benchmarks.real.models import frozen_models
from benchmarks.real.tasks import TASKS

PATIENTS, EACH = 9, 12
CLASSES = TASKS["glas-classes"].classes or ()


def archive(folder: Path, labels: np.ndarray, scores: np.ndarray) -> Path:
    """A glas-patches.zip of noise: nine patients, the last patch of each without a class."""
    folder.mkdir()
    random = np.random.default_rng(0)
    names = [f"glas/{patient}/{n}.png" for patient in range(PATIENTS) for n in range(EACH)]
    table = pd.DataFrame({"path": names, "patient_id": [f"p{name.split('/')[1]}" for name in names]})
    with zipfile.ZipFile(folder / "glas-patches.zip", "w") as archive:
        for name in names:
            picture = io.BytesIO()
            Image.fromarray(random.integers(0, 256, (128, 128, 3), dtype=np.uint8)).save(picture, "PNG")
            archive.writestr(name, picture.getvalue())
        archive.writestr("scores.csv", table.assign(score=scores, mpp=0.62).to_csv(index=False))
        has_class = np.arange(len(names)) % EACH < EACH - 1
        classes = table.assign(label=np.array(CLASSES)[labels], mpp=0.62)[has_class]
        archive.writestr("classes.csv", classes.to_csv(index=False))
    return folder


def bench_of(real: Path, cache: Path) -> Bench:
    return Bench(
        real, cache, frozen_models({"random": encoders.write_encoder("random", cache / "encoders")}, {})
    )
