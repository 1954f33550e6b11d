"""The encoder of the atlas as a versioned model: RSP + MoCo on 26 real slides, from ImageNet's weights.

    python benchmarks/atlas.py FOLDER [--seed 1]    # needs ../shared/real, which is only read; 35 minutes of one core

FOLDER becomes a project of `init --dataset own`, with the atlas in slides.csv and patches of 128 px.
DVC pretrains. encoder.md, the model's card, states slides, licenses, training, and figures of docs/real.csv. A second
call goes on after a stop.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from real.rows import MINUS, Figure, read_csv, table_rows

from histo_monai.models.checkpoint import read_description
from histo_monai.pipeline.commands.init import set_values

ROOT = Path(__file__).resolve().parent.parent
ATLAS = ROOT.parent / "shared" / "real" / "atlas"
METHOD = "rsp_moco"
CARD = "encoder.md"
MODEL = "atlas-rsp-moco"
"""Name of the encoder in docs/real.csv."""
BUDGETS = ("30", "60", "120")
PUBLISH = "git add --all && git commit -m 'Encoder of the atlas' && gto register encoder --version v1.0.0 && dvc push"


def main() -> None:
    """Lay out, pretrain, describe."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0, help="of the pretraining (default: 0)")
    parser.add_argument("--atlas", type=Path, default=ATLAS, help=f"folder of slides.csv (default: {ATLAS})")
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="PARAM=VALUE", help="other values of params.yaml"
    )
    arguments = parser.parse_args()
    for one in arguments.set:
        if "=" not in one:
            parser.error(f"--set {one}: not PARAM=VALUE")
    slides = read_slides(arguments.atlas)
    if not arguments.folder.exists():
        words = [sys.executable, "-m", "histo_monai", "init", str(arguments.folder), "--dataset", "own"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    lay_out(arguments.folder, slides, arguments.seed, arguments.set)
    stage = f"pretrain@{METHOD}-{arguments.seed}"
    subprocess.run([sys.executable, "-m", "dvc", "repro", stage], cwd=arguments.folder, check=True)
    encoder = arguments.folder / f"data/models/{METHOD}-{arguments.seed}"
    (arguments.folder / CARD).write_text(card(encoder, slides, read_csv(ROOT / "docs/real.csv")))
    print(
        f"{encoder / 'encoder.safetensors'}, described in {CARD}. To publish it, in {arguments.folder}:\n    {PUBLISH}"
    )


def read_slides(atlas: Path) -> pd.DataFrame:
    """Table of the atlas, with absolute paths."""
    if not (atlas / "slides.csv").is_file():
        sys.exit(f"{atlas}: no slides.csv. Fix: name the folder of the atlas by --atlas")
    slides = pd.read_csv(atlas / "slides.csv", dtype=str)
    return slides.assign(path=[str((atlas / name).absolute()) for name in slides["path"]])


def lay_out(folder: Path, slides: pd.DataFrame, seed: int, changes: list[str]) -> None:
    """Write slides.csv and the params that differ."""
    own = folder / "data/raw/own"
    own.mkdir(parents=True, exist_ok=True)
    slides[["slide_id", "path", "patient_id", "mpp"]].to_csv(own / "slides.csv", index=False)
    values = {
        "patch_px": "128",
        "pretraining_methods": f"[{METHOD}]",
        "pretraining_seeds": f"[{seed}]",
        "slide_level.pretraining_methods": "[]",
    }
    set_values(folder / "params.yaml", values | dict(change.split("=", 1) for change in changes))


def card(encoder: Path, slides: pd.DataFrame, figures: Sequence[Figure]) -> str:
    """The model's card, in Markdown."""
    described = read_description(encoder / "encoder.json")
    network, recipe = described["encoder"], described["params"][METHOD]
    organs = slides.groupby("organ").size().sort_values(ascending=False, kind="stable")
    counts = ", ".join(f"{organ} {num}" for organ, num in organs.items())
    side, mpps = described["patch_px"], ", ".join(f"{mpp:g}" for mpp in described["mpps"])
    ordered = described["metrics"]["validation_accuracy"]
    rows = "\n".join(_rows(figures))
    return f"""# Encoder of the atlas

{network["name"]}, continued from ImageNet's weights by RSP + MoCo on {len(slides)} H&E slides at {mpps} µm/px. It
gives {network["num_features"]} features of a patch of {side} px. For research, not for diagnosis.

- File: `{encoder.name}/encoder.safetensors`, SHA-256 `{described["sha256"]}`, seed {described["seed"]}.
- Slides: Patoloji Atlasi, Copyright (c) 2022 Pathology Atlas, MIT. {slides["patient_id"].nunique()} cases: {counts}.
- Start: ImageNet's weights, {network["weights"]["license"]}, SHA-256 `{network["weights"]["sha256"]}`.
- Training: {recipe["epochs"]} epoch, batches of {recipe["batch_size"]}, rate {recipe["lr_from_weights"]:g}. It orders
  {ordered:.3f} of the triples of other cases; chance is 0.167.

Frozen features of seed 0 on real tissue, patients left out: value and 95 % interval (breast has two patients, and no
interval). `−` is a paired difference; the ImageNet network reads 224 px.

| task | metric | model | {" | ".join(f"{budget} labels" for budget in BUDGETS)} |
|{"---|" * (3 + len(BUDGETS))}
{rows}
"""


def _rows(figures: Sequence[Figure]) -> list[str]:
    # Names of other seeds and input sides have numbers.
    name = re.compile(rf"{MODEL}-[a-z-]+({MINUS}imagenet-[a-z-]+)?")
    ours = [each for each in figures if name.fullmatch(each.model) and each.budget in BUDGETS]
    return [
        f"| {task} {row}"
        for task, metric in dict.fromkeys((each.task, each.metric) for each in ours)
        for row in table_rows([each for each in ours if (each.task, each.metric) == (task, metric)], BUDGETS)
    ]


if __name__ == "__main__":
    main()
