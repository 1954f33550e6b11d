"""Reader of the user's `slides.csv`, and the comparison of slide files with its sha256 column."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pandas as pd

from histo_monai.data.tables.columns import SPLITS
from histo_monai.data.tables.manifests import (
    check_classes,
    check_names,
    check_texts,
    first_five,
    first_row,
    read_numbers,
    read_table,
)
from histo_monai.slides.annotations import BOUNDS, CANVAS, ORIGINS
from histo_monai.slides.resolution import PLAUSIBLE_MPP
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.processes import map_over_processes
from histo_monai.utils.storage import file_sha256, slide_files

COLUMNS = (
    *("slide_id", "path", "patient_id", "mpp", "label", "split", "annotation_origin", "exhaustive", "sha256"),
)
YES, NO = "yes", "no"
YES_NO = (YES, NO)
MPP = "µm per pixel, 0.05 to 64"
"""Range of a patch's µm/px: patches may be much coarser than any slide."""

_SLIDE_MPP = "µm per pixel of the full resolution, {:g} to {:g}".format(*PLAUSIBLE_MPP)
_SHA256 = r"[0-9a-fA-F]{64}"
_SHOWN = 12


def read_slides(root: Path) -> pd.DataFrame:
    """Checked table of slides.csv: `COLUMNS`, indexed by line number. Does not compare `sha256`.

    Raises:
        InputError: The file or a required column is missing, a column is unknown, an id repeats or cannot name a file,
            or a value does not fit its column; names file and row.
    """
    manifest = root / "slides.csv"
    if not manifest.exists():
        raise InputError(
            f"{manifest}: not found. Fix: list your slides there, with the columns "
            "slide_id,path[,patient_id,mpp,label,split,annotation_origin,exhaustive,sha256]."
        )
    table = with_columns(read_table(manifest, needed=("slide_id", "path"), known=COLUMNS), COLUMNS)
    check_names(manifest, table["slide_id"])
    check_texts(manifest, table["patient_id"])
    check_classes(manifest, table["label"])
    check_split(manifest, table["split"])
    if (row := row_without_split(table["split"])) is not None:
        raise InputError(f"{manifest}, row {row}: {WITHOUT_SPLIT}")
    tested = set(table.loc[table["split"] == "test", "patient_id"]) - {""}
    divided = (table["split"] == "") & table["patient_id"].isin(tested)
    if divided.any():
        row = first_row(divided)
        raise InputError(
            f"{manifest}, row {row}: no split, but another slide of patient {table.loc[row, 'patient_id']!r} "
            "is for the test. Fix: write test."
        )
    check_origin(manifest, table["annotation_origin"])
    odd = ~table["exhaustive"].isin(["", *YES_NO])
    if odd.any():
        row = first_row(odd)
        raise InputError(
            f"{manifest}, row {row}: exhaustive is {table.loc[row, 'exhaustive']!r}. Fix: write yes if everything of "
            "the outlined classes is outlined; else write no or nothing."
        )
    wrong = (table["sha256"] != "") & ~table["sha256"].str.fullmatch(_SHA256)
    if wrong.any():
        row = first_row(wrong)
        raise InputError(
            f"{manifest}, row {row}: sha256 is {table.loc[row, 'sha256']!r}. Fix: write the 64 hexadecimal digits of "
            "sha256sum, or nothing."
        )
    table["mpp"] = read_numbers(
        manifest, table["mpp"], *PLAUSIBLE_MPP, f"{_SLIDE_MPP}, or nothing if the file states it"
    )
    table["path"] = [root / path for path in table["path"]]
    return table


def check_sha256(root: Path, processes: int) -> None:
    """Compare each slide with its sha256 in slides.csv, if it has one; reads all files of these slides.

    Args:
        processes: Slides read at the same time.

    Raises:
        InputError: slides.csv is invalid, or a file is missing or differs; names up to five rows.
    """
    table = read_slides(root)
    table = table[table["sha256"] != ""]
    if table.empty:
        return
    paths = [Path(path) for path in table["path"]]
    checked = map_over_processes(_sha256, paths, processes=processes, title="sha256", unit="slide")
    problems = []
    for row, path, given, (digest, problem) in zip(table.index, paths, table["sha256"], checked, strict=True):
        if problem:
            problems.append(f"row {row}: {problem}")
        elif digest != given.lower():
            differs = (
                f"its sha256{_of_several(path)} is {digest[:_SHOWN]}..., not {given.lower()[:_SHOWN]}..."
            )
            problems.append(f"row {row}: {path}: {differs}")
    if problems:
        counted = f"{len(problems)} of {len(table)} slides do not match their sha256"
        raise InputError(
            f"{root / 'slides.csv'}: {counted}: {first_five(problems)}. Fix: copy them again or correct the column."
        )


def slide_sha256(path: Path) -> str:
    """SHA-256 of a slide's file as `sha256sum` prints it; for several files, the digest of these printed lines.

    It equals `sha256sum a.vms a.jpg ... | sha256sum` in the slide's folder: first the file in slides.csv, then the
    slide's other files, sorted by name.

    Raises:
        InputFileError: One of the files is no regular file.
        OSError: A file cannot be read.
    """
    files = slide_files(path)
    digests = [file_sha256(file) for file in files]
    if len(files) == 1:
        return digests[0]
    lines = (
        f"{digest}  {file.relative_to(path.parent)}\n" for digest, file in zip(digests, files, strict=True)
    )
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _of_several(path: Path) -> str:
    """Hint for the message if a slide has several files: users often give the digest of the named file alone."""
    num = len(slide_files(path))
    return f" of {num} files (`sha256sum` of each, one a line, and of these lines)" if num > 1 else ""


def _sha256(path: Path) -> tuple[str, str]:
    """Digest of a slide and an empty text, or an empty digest and the error."""
    try:
        return slide_sha256(path), ""
    except FileNotFoundError:
        return "", f"{path}: no such file"
    except OSError as error:
        return "", f"{path}: cannot be read ({error.strerror})"
    except InputError as error:
        return "", str(error)


def with_columns(table: pd.DataFrame, columns: tuple[str, ...]) -> pd.DataFrame:
    """The columns in this order; missing columns hold empty texts."""
    return table.reindex(columns=list(columns), fill_value="")


def check_origin(path: Path, origin: pd.Series) -> None:
    """Refuse values that are no origin of coordinates; an empty value means the origin of the file's program.

    Raises:
        InputError: Names the file, the row and the column.
    """
    wrong = ~origin.isin(["", *ORIGINS])
    if wrong.any():
        row = first_row(wrong)
        raise InputError(
            f"{path}, row {row}: {origin.name} is {origin[row]!r}. Fix: write {BOUNDS} (QuPath's origin), {CANVAS} "
            "(OpenSlide's origin), or nothing."
        )


WITHOUT_SPLIT = (
    "no split, while other rows are for training or validation. "
    "Fix: fill the column split, or leave all but test empty."
)
"""End of the error for `row_without_split`."""


def row_without_split(split: pd.Series) -> int | None:
    """Index of the first row without a split, if other rows are for training or validation; else None."""
    bare = split == ""
    mixed = bare.any() and split.isin(["train", "validation"]).any()
    return first_row(bare) if mixed else None


def check_split(path: Path, split: pd.Series) -> None:
    """Refuse an unknown split; the index assigns empty ones.

    Raises:
        InputError: Names the file and the row.
    """
    wrong = ~split.isin(["", *SPLITS])
    if wrong.any():
        row = first_row(wrong)
        raise InputError(
            f"{path}, row {row}: split is {split[row]!r}. Fix: write {', '.join(SPLITS)} or nothing."
        )
