"""A dataset in one file: slides that are striped or plain, a label each, and what simulates them."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pandas as pd

from histo_monai.data.readers.protocol import Dataset, Reading
from histo_monai.data.readers.settings import CorpusSettings, LabelSettings
from histo_monai.data.simulated import SimulatedDataset, SimulatedSize
from histo_monai.data.tables.columns import corpus_table, whole_slide_table
from histo_monai.data.tables.patches import LabeledDataset, labeled_table
from histo_monai.utils.settings.rules import Count, MicronsPerPixel, Positive, Range
from tests.hostile.project import slide_pixels, write_slide

SPLITS = ("train", "train", "train", "train", "validation", "validation", "test", "test")
CLASSES = ("striped", "plain")
LEFT, STEP = 150, 60


@dataclass(frozen=True)
class ToyCorpus(CorpusSettings):
    """Of the slides in training, every so many is left out."""

    every: Annotated[int, Range(2)]


@dataclass(frozen=True)
class ToyLabels(LabelSettings):
    """Squares of each slide, in a row."""

    mpp: MicronsPerPixel
    num_per_slide: Count


@dataclass(frozen=True)
class ToyMaps:
    """Maps of stripes."""

    stride_um: Positive

    @property
    def positive_class(self) -> str:
        return CLASSES[0]


def _write(root: Path, size: SimulatedSize, processes: int) -> None:
    rows = ["slide,split,label"]
    for number, split in enumerate(SPLITS):
        label = CLASSES[number % 2]
        pixels = slide_pixels(size.seed + number, size.slide_side_px)
        if label == "striped":
            pixels[::16] = pixels[::16] // 2
        write_slide(root / f"toy{number}.tif", mpp=size.slide_mpp, pixels=pixels)
        rows.append(f"toy{number},{split},{label}")
    (root / "truth.csv").write_text("\n".join(rows) + "\n")


class Toy(Dataset):
    CorpusSettings: ClassVar = ToyCorpus
    LabelSettings: ClassVar = ToyLabels
    MapSettings: ClassVar = ToyMaps
    phantom: ClassVar = SimulatedDataset("toy", _write)

    def pretraining_slides(self, root: Path, settings: Any) -> pd.DataFrame:
        kept = [row for i, row in enumerate(_truth(root)) if i % settings.every and row["split"] != "test"]
        return corpus_table([{name: row[name] for name in ("slide_id", "path", "split")} for row in kept])

    def labeled_patches(self, reading: Reading) -> LabeledDataset:
        rows = [
            row
            | {"patch_id": f"{row['slide_id']}-{i}", "y": LEFT, "x": LEFT + STEP * i}
            | {"mpp": reading.labels.mpp, "side_px": reading.patch_px}
            for row in _truth(reading.root)
            for i in range(reading.labels.num_per_slide)
        ]
        return LabeledDataset(labeled_table(rows), ("toys are not tissue",))

    def whole_slides(self, reading: Reading) -> tuple[pd.DataFrame, list[str]]:
        return whole_slide_table(_truth(reading.root)), []


def _truth(root: Path) -> list[dict[str, Any]]:
    with (root / "truth.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        {"slide_id": row["slide"], "path": str(root / f"{row['slide']}.tif"), "patient_id": row["slide"]}
        | {"split": row["split"], "label": row["label"]}
        for row in rows
    ]


TOY = Toy()
