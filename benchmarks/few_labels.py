"""Does pretraining and consistency training pay? Over the seeds of one experiment, by paired intervals.

    dvc exp run -S 'seeds=[0,1,2,3,4]' [-S dataset=kather]
    python benchmarks/few_labels.py [--split test]

Reads data/evaluation/<method>-<seed>/predictions.csv. For every model: mean and standard deviation over seeds of the
headline (accuracy, or ICC(2,1) with pathologist A). For "rsp, student" and "rsp, fine-tuned" against "random,
fine-tuned" and against each color baseline, two 95 % intervals of the mean difference:

* seeds: Student's t over the differences of equal seeds: would other initialisations and orders say the same?
* patients: patients or slides (patches where neither is known) of the test set resampled, the seeds kept: would other
  patients say the same?
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from histo_monai.datasets.tasks import dependence_groups
from histo_monai.metrics import grouped_bootstrap, intraclass_correlation

MODELS = ("finetuned", "student", "color_mean", "color_histogram")
TEXTS = ("patch_id", "split", "slide_id", "patient_id", "label")
BASELINES = ("random finetuned", "random color_mean", "random color_histogram")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--split", default="test", choices=("validation", "test"))
    parser.add_argument("--folder", type=Path, default=Path("data/evaluation"))
    arguments = parser.parse_args()
    tables = read_tables(arguments.folder, arguments.split)
    seeds = sorted({seed for _, seed in tables})
    patches = tables["random", seeds[0]]
    print(f"{arguments.split}: {len(patches)} patches, seeds {seeds}")
    # Per model, Shape (patches, seeds).
    said = {
        f"{method} {model}": np.stack([goodness(tables[method, seed], model) for seed in seeds], axis=1)
        for method, model in itertools.product(("random", "rsp"), MODELS)
    }
    for name, values in said.items():
        each = headline(patches, values)
        print(f"  {name:<24} {each.mean():.3f} ± {each.std(ddof=1):.3f}   {np.round(each, 3).tolist()}")
    pairs = [*itertools.product(("rsp student", "rsp finetuned"), BASELINES)]
    pairs += [("random finetuned", name) for name in BASELINES[1:]] + [("rsp student", "rsp finetuned")]
    for first, second in pairs:
        compare(f"{first} - {second}", patches, said[first], said[second])


def read_tables(folder: Path, split: str) -> dict[tuple[str, int], pd.DataFrame]:
    """By method and seed."""
    tables = {}
    for path in sorted(folder.glob("*-*/predictions.csv")):
        method, seed = path.parent.name.rsplit("-", 1)
        table = pd.read_csv(path, dtype=dict.fromkeys(TEXTS, str))
        table[list(TEXTS)] = table[list(TEXTS)].fillna("")
        tables[method, int(seed)] = table[table["split"] == split].reset_index(drop=True)
    if not tables:
        raise SystemExit(f"{folder}: no predictions; run `dvc repro` first")
    return tables


def goodness(table: pd.DataFrame, model: str) -> np.ndarray:
    """Whether the decision is right, or the predicted score. Shape (patches,)."""
    if model in table:
        return table[model].to_numpy()
    columns = [name for name in table if str(name).startswith(f"{model}_")]
    decided = table[columns].to_numpy().argmax(axis=1)
    names = np.array([str(name).removeprefix(f"{model}_") for name in columns])
    return (names[decided] == table["label"].to_numpy()).astype(float)


def headline(patches: pd.DataFrame, values: np.ndarray) -> np.ndarray:
    """Accuracy, or ICC(2,1) with pathologist A, of each seed. Shape (seeds,)."""
    if patches["label"].iloc[0]:
        return values.mean(axis=0)
    return agreement(reference(patches), values)


def reference(patches: pd.DataFrame) -> np.ndarray:
    rated = patches["rater_a"].notna().all()
    return patches["rater_a" if rated else "score"].to_numpy()


def agreement(scores: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.array([intraclass_correlation(np.stack([scores, said], axis=1)).value for said in values.T])


def compare(name: str, patches: pd.DataFrame, first: np.ndarray, second: np.ndarray) -> None:
    """Both intervals of the mean difference."""
    each = headline(patches, first) - headline(patches, second)
    half = stats.t.ppf(0.975, len(each) - 1) * each.std(ddof=1) / np.sqrt(len(each))
    scores = np.zeros(len(patches)) if patches["label"].iloc[0] else reference(patches)

    def difference(scores: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
        if patches["label"].iloc[0]:
            return float((first - second).mean())
        return float((agreement(scores, first) - agreement(scores, second)).mean())

    over = grouped_bootstrap(
        difference, (scores, first, second), dependence_groups(patches), seed=0, num_replicates=500
    )
    print(
        f"  {name:<45} {each.mean():+.3f}   seeds {each.mean() - half:+.3f} to {each.mean() + half:+.3f}"
        f"   patients {over.low:+.3f} to {over.high:+.3f} (n = {over.n})"
    )


if __name__ == "__main__":
    main()
