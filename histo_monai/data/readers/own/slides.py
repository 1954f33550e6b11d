"""`slides.csv` of your own data: which slides there are, and whether their files are still what it says."""

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
    """All of slides.csv, checked: `COLUMNS`, each row under the number of its line; `sha256` is not compared yet.

    Raises:
        InputError: the file or a needed column is missing, a column is unknown, an id comes twice or cannot be the
            name of a file, or a value is not what its column holds; names file and row.
    """
    manifest = root / "slides.csv"
    if not manifest.exists():
        raise InputError(
            f"{manifest}: not found; list your slides there: "
            "slide_id,path[,patient_id,mpp,label,split,annotation_origin,exhaustive,sha256]"
        )
    table = with_columns(read_table(manifest, needed=("slide_id", "path"), known=COLUMNS), COLUMNS)
    check_names(manifest, table["slide_id"])
    check_texts(manifest, table["patient_id"])
    check_classes(manifest, table["label"])
    check_split(manifest, table["split"])
    bare = table["split"] == ""
    if bare.any() and not bare.all():
        raise InputError(
            f"{manifest}, row {first_row(bare)}: no split, while other rows have one; "
            "fill the column split, or remove it"
        )
    check_origin(manifest, table["annotation_origin"])
    odd = ~table["exhaustive"].isin(["", *YES_NO])
    if odd.any():
        row = first_row(odd)
        raise InputError(
            f"{manifest}, row {row}: exhaustive is {table.loc[row, 'exhaustive']!r}; expected yes, where all there is "
            "of the outlined classes is outlined, or no, or nothing (no)"
        )
    wrong = (table["sha256"] != "") & ~table["sha256"].str.fullmatch(_SHA256)
    if wrong.any():
        row = first_row(wrong)
        raise InputError(
            f"{manifest}, row {row}: sha256 is {table.loc[row, 'sha256']!r}; expected 64 hexadecimal digits, as "
            "sha256sum prints them, or nothing"
        )
    table["mpp"] = read_numbers(
        manifest, table["mpp"], *PLAUSIBLE_MPP, f"{_SLIDE_MPP}, or nothing where the file knows it"
    )
    table["path"] = [root / path for path in table["path"]]
    return table


def check_sha256(root: Path, processes: int) -> None:
    """Compare every slide that has a sha256 in slides.csv with it; reads all files of the slide, see `slide_sha256`.

    Args:
        processes: slides read at the same time.

    Raises:
        InputError: see `read_slides`; or a file is missing or is another than slides.csv says: names up to five rows.
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
        counted = f"{len(problems)} of {len(table)} slides are not what sha256 says"
        raise InputError(
            f"{root / 'slides.csv'}: {counted}: {first_five(problems)}. Copy the slide again, or correct the column"
        )


def slide_sha256(path: Path) -> str:
    """The digest of a slide's file as `sha256sum` prints it; for several files, the digest of these printed lines.

    `sha256sum a.vms a.jpg ... | sha256sum`, run in the folder of the slide: the file that slides.csv names first, then
    the slide's other files, sorted by name.

    Raises:
        InputFileError: See `slide_files`.
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
    """A hint for the message, if a slide has several files: users often give the digest of the named file alone."""
    num = len(slide_files(path))
    return f" of {num} files (`sha256sum` of each, one a line, and of these lines)" if num > 1 else ""


def _sha256(path: Path) -> tuple[str, str]:
    """`slide_sha256` and an empty text, or an empty digest and the error."""
    try:
        return slide_sha256(path), ""
    except FileNotFoundError:
        return "", f"{path}: no such file"
    except OSError as error:
        return "", f"{path}: cannot be read ({error.strerror})"
    except InputError as error:
        return "", str(error)


def with_columns(table: pd.DataFrame, columns: tuple[str, ...]) -> pd.DataFrame:
    """The columns in this order, empty texts where one is missing."""
    return table.reindex(columns=list(columns), fill_value="")


def check_origin(path: Path, origin: pd.Series) -> None:
    """Refuse values that are no origin of coordinates; an empty value means the origin of the file's program.

    Raises:
        InputError: names the file, the row and the column.
    """
    wrong = ~origin.isin(["", *ORIGINS])
    if wrong.any():
        row = first_row(wrong)
        raise InputError(
            f"{path}, row {row}: {origin.name} is {origin[row]!r}. Fix: write {BOUNDS} (as QuPath counts), {CANVAS} "
            "(as OpenSlide counts), or nothing"
        )


def check_split(path: Path, split: pd.Series) -> None:
    """Refuse a split of another name; an empty one is still to be drawn.

    Raises:
        InputError: names the file and the row.
    """
    wrong = ~split.isin(["", *SPLITS])
    if wrong.any():
        row = first_row(wrong)
        raise InputError(
            f"{path}, row {row}: split is {split[row]!r}; expected {', '.join(SPLITS)} or nothing"
        )
