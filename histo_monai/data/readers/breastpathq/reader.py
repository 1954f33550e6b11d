"""BreastPathQ in its published folder tree (Petrick et al. 2021; TCIA collection Post-NAT-BRCA)."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Protocol

import pandas as pd

from histo_monai.data.tables.columns import corpus_table
from histo_monai.data.tables.manifests import first_row, read_numbers, read_table
from histo_monai.data.tables.patches import LabeledDataset, labeled_table
from histo_monai.utils.errors import InputError
from histo_monai.utils.files.trees import files_below, find_tree, has_tree, is_file, list_images, read_bytes

PATCH_PX, PATCH_MPP = 512, 0.5
_TRAINING, _TESTING = "breastpathq", "breastpathq-test"
_KEY = ["slide_id", "region"]


class RaterColumn(Protocol):
    """Column of one pathologist's scores, in a csv of the folder `breastpathq-test`."""

    @property
    def file(self) -> str:
        """The csv."""

    @property
    def column(self) -> str:
        """Its column."""


def pretraining_slides(root: Path) -> pd.DataFrame:
    """Every `*.svs` slide in any sub-folder of `root`, without the slides of test patches, as `CORPUS_COLUMNS`.

    The patient is the file name before the first underscore or blank: the collection numbers its slides per patient.
    Test slides are excluded by name if the test patches are below `root`.

    Raises:
        InputError: No slide exists, or two slides have one name.
    """
    paths = [path for path in files_below(root) if path.suffix.lower() == ".svs"]
    if not paths:
        raise InputError(
            f"{root}: no *.svs slide below this folder. Fix: put the slides of Post-NAT-BRCA here."
        )
    tested = _slides_of_test_patches(root) if has_tree(root, _TESTING) else set()
    rows = [
        {"slide_id": path.stem, "path": path, "patient_id": path.stem.replace(" ", "_").split("_")[0]}
        for path in paths
        if path.stem.lower() not in tested
    ]
    return corpus_table(rows)


def _slides_of_test_patches(root: Path) -> set[str]:
    names = list_images(find_tree(root, _TESTING) / "test_patches")
    return {PurePosixPath(name).stem.rpartition("_")[0].lower() for name in names}


def labeled_patches(
    root: Path, *, slide_column: str, region_column: str, rater_a: RaterColumn, rater_b: RaterColumn
) -> LabeledDataset:
    """All scored patches: official train and validation patches, not split yet, and test patches.

    The paper pools train and validation and splits them 80 to 20 (2,063 and 516 of 2,579). A test patch's score is the
    mean of its two raters.

    Args:
        root: Contains `breastpathq` and `breastpathq-test`, each a folder or the published zip.
        slide_column: Column of the test score tables.
        region_column: Column of the test score tables.
        rater_a: Scores of the first pathologist; may be in the second one's csv.
        rater_b: Scores of the second pathologist.

    Raises:
        InputError: A table, a column or a patch is missing; a patch has no score; a score is not in 0..1; or a test
            slide has no patient in test_patient_ids.csv, if that file exists.
    """
    training, testing = find_tree(root, _TRAINING), find_tree(root, _TESTING)
    datasets = training / "datasets"
    scored = [
        _paired(datasets / "train", _scores(datasets / "train_labels.csv", "slide", "rid", "y")),
        _paired(datasets / "validation", _scores(_validation_labels(datasets, testing), "slide", "rid", "y")),
    ]
    rated = _ratings(testing, slide_column, region_column, rater_a, rater_b)
    tested = _paired(testing / "test_patches", rated).assign(split="test")
    tested["patient_id"] = _patients(testing / "test_patient_ids.csv", tested["slide_id"])
    table = pd.concat([*scored, tested], ignore_index=True).drop(columns=["region", "csv", "row"])
    return LabeledDataset(labeled_table(table.assign(mpp=PATCH_MPP, side_px=PATCH_PX)))


def _validation_labels(datasets: Path, testing: Path) -> Path:
    """Path of val_labels.csv, which one release stores with the patches and another with the test set."""
    tables = [path for path in (datasets / "val_labels.csv", testing / "val_labels.csv") if is_file(path)]
    if not tables:
        raise InputError(
            f"{datasets / 'val_labels.csv'}: no such file, and none in {testing}. Fix: download it."
        )
    if len(tables) == 2 and read_bytes(tables[0]) != read_bytes(tables[1]):
        raise InputError(f"{tables[0]} and {tables[1]}: two tables that differ. Fix: remove the wrong one.")
    return tables[0]


def _scores(path: Path, slide_column: str, region_column: str, score_column: str) -> pd.DataFrame:
    """Columns `slide_id`, `region`, `score`, and the source of each score as `csv` and `row`."""
    key = (slide_column, region_column)
    table = read_table(path, needed=(*key, score_column), key=key)
    return pd.DataFrame(
        {
            "slide_id": table[slide_column],
            "region": table[region_column],
            "score": read_numbers(path, table[score_column], 0.0, 1.0, "a fraction in 0..1"),
            "csv": str(path),
            "row": table.index,
        }
    )


def _ratings(
    folder: Path, slide_column: str, region_column: str, rater_a: RaterColumn, rater_b: RaterColumn
) -> pd.DataFrame:
    """The columns of `_scores`, with the mean score and both ratings `rater_a` and `rater_b`."""
    if (rater_a.file, rater_a.column) == (rater_b.file, rater_b.column):
        raise InputError(
            f"both raters of BreastPathQ are column {rater_a.column!r} of {rater_a.file}. "
            "Fix: name two columns or two files in labels.breastpathq."
        )
    first, second = (
        _scores(folder / rater.file, slide_column, region_column, rater.column)
        for rater in (rater_a, rater_b)
    )
    both = first.merge(second, on=_KEY, how="outer", suffixes=("_a", "_b"), validate="one_to_one")
    for one, other, file in (("a", "b", rater_b.file), ("b", "a", rater_a.file)):
        alone = both[both[f"score_{other}"].isna()]
        if len(alone):
            row = alone.iloc[0]
            raise InputError(
                f"{row[f'csv_{one}']}, row {row[f'row_{one}']:.0f}: patch {row['slide_id']}_{row['region']} "
                f"has no score in {folder / file}. Fix: add it or remove the row."
            )
    both = both.rename(columns={"score_a": "rater_a", "score_b": "rater_b", "csv_a": "csv", "row_a": "row"})
    both = both.astype({"row": int}).sort_values("row")
    return both.assign(score=(both["rater_a"] + both["rater_b"]) / 2).drop(columns=["csv_b", "row_b"])


def _paired(folder: Path, scores: pd.DataFrame) -> pd.DataFrame:
    """Scores with the `patch_id` and `path` of their images, matched by name regardless of case."""
    names: dict[str, str] = {}
    for name in list_images(folder):
        stem = PurePosixPath(name).stem.lower()
        if stem in names:
            raise InputError(
                f"{folder / name}: a second image of patch {stem}, beside {names[stem]}. Fix: remove one."
            )
        names[stem] = name
    wanted = (scores["slide_id"] + "_" + scores["region"]).str.lower()
    missing = ~wanted.isin(list(names))
    if missing.any():
        row = scores[missing].iloc[0]
        raise InputError(
            f"{row['csv']}, row {row['row']}: no image {folder}/{row['slide_id']}_{row['region']}.tif. Fix: add it."
        )
    extra = sorted(set(names) - set(wanted))
    if extra:
        raise InputError(
            f"{folder / names[extra[0]]}: no score in {scores['csv'].iloc[0]}"
            f"{f', nor for {len(extra) - 1} more images' if len(extra) > 1 else ''}. Fix: add it or remove the image."
        )
    paths = [str(folder / names[stem]) for stem in wanted]
    return scores.assign(patch_id=f"{folder.name}/" + wanted, path=paths, split="", patient_id="")


def _patients(path: Path, slides: pd.Series) -> pd.Series:
    """The patient of each slide; empty without a table."""
    if not is_file(path):
        return pd.Series("", index=slides.index)
    table = read_table(path, needed=(), key=())
    by_name = {column.lower().replace(" ", "_"): column for column in table.columns}
    slide = next((by_name[name] for name in by_name if "slide" in name), None)
    patient = next((by_name[name] for name in by_name if "patient" in name), None)
    if slide is None or patient is None:
        expected = "name one column with `slide` and one with `patient` in it"
        raise InputError(f"{path}: has columns {', '.join(table.columns)}. Fix: {expected}.")
    several = table.groupby(slide)[patient].transform("nunique") > 1
    if several.any():
        row = first_row(several)
        raise InputError(
            f"{path}, row {row}: slide {table[slide][row]} has two patients. Fix: correct the row."
        )
    patients = slides.map(table.drop_duplicates(slide).set_index(slide)[patient])
    unknown = patients.isna() | (patients == "")
    if unknown.any():
        raise InputError(
            f"{path}: no patient for slide {slides[unknown].iloc[0]} of the test patches. Fix: add its row."
        )
    return patients
