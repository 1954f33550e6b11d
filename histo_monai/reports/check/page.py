"""HTML page of the stage `check`: input before any training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import pandas as pd

from histo_monai.data.tables.columns import SPLITS
from histo_monai.reports.check.survey import CENTER, EXCLUDED

_STYLE = """
:root { color-scheme: light dark; --line: #b0b0b0; --bad: #b3261e; --soft: #76767622; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 78rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
.scroll { overflow-x: auto; } li { margin: .4rem 0; } .bad { color: var(--bad); font-weight: 600; }
.slides { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: 1rem; }
figure { margin: 0; border: 1px solid var(--line); border-radius: 6px; overflow: hidden; background: white; }
figure img { display: block; width: 100%; height: 15rem; object-fit: contain; background: white; }
figcaption { padding: .5rem .7rem; background: Canvas; overflow-wrap: anywhere; }
.key span { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 1em; border-radius: 2px; }
@media (prefers-color-scheme: dark) { :root { --bad: #ff8a80; } }
"""


@dataclass(frozen=True)
class Checked:
    """Content of the page.

    Attributes:
        problems: one line per reason that a later stage would fail.
        data_warnings: one line per reason that results are weaker.
        slides: every slide once: `slide_id`, `split`, `patient_id`, `label`, `mpp`, `excluded` (fraction of tissue).
        pictures: slide_id -> picture, relative to the page.
        centers: patch centers of the pretraining, `data.tables.columns.CENTER_COLUMNS`.
        patches: `data.tables.columns.PATCH_COLUMNS`.
        colors: class -> color of its squares.
    """

    problems: Sequence[str]
    data_warnings: Sequence[str]
    slides: pd.DataFrame
    pictures: Mapping[str, str]
    centers: pd.DataFrame
    patches: pd.DataFrame
    colors: Mapping[str, str]


def check_page(checked: Checked) -> str:
    """HTML that opens without a server and loads only the pictures beside it."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>Ready to train?</title><style>{_STYLE}</style>",
        f"<h1>{_headline(checked)}</h1>",
        _lines("To mend", checked.problems, "bad"),
        _lines("To know", checked.data_warnings),
        "<h2>Labeled patches</h2>",
        _table(_by_class(checked.patches)) if len(checked.patches) else "<p>None.</p>",
        "<h2>Slides</h2>",
        _table(_by_split(checked)),
        _pictures(checked),
        _excluded(checked.slides),
        "</html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _headline(checked: Checked) -> str:
    if checked.problems:
        return f"Not ready to train: {len(checked.problems)} to fix"
    num = len(checked.data_warnings)
    return f"Ready to train, {num} data warning{'s' if num > 1 else ''}" if num else "Ready to train"


def _lines(title: str, lines: Sequence[str], look: str = "") -> str:
    if not lines:
        return ""
    items = "".join(f"<li class='{look}'>{escape(line)}</li>" for line in lines)
    return f"<h2>{title}</h2><ul>{items}</ul>"


def _table(table: pd.DataFrame) -> str:
    head = "".join(f"<th>{escape(str(name))}</th>" for name in ("", *table.columns))
    rows = "".join(
        f"<tr><td>{escape(str(name))}</td>" + "".join(f"<td>{value}</td>" for value in row) + "</tr>"
        for name, row in zip(table.index, table.to_numpy().tolist(), strict=True)
    )
    return f"<div class=scroll><table><tr>{head}</tr>{rows}</table></div>"


def _by_class(patches: pd.DataFrame) -> pd.DataFrame:
    """Patches, patients and slides by class and split, one row for scores; validation only if it has patches."""
    splits = [split for split in SPLITS if split != "validation" or (patches["split"] == split).any()]
    label = patches["label"].where(patches["label"] != "", "with a score")
    counts = patches.groupby([label, "split"]).size().unstack(fill_value=0)
    counts = counts.reindex(columns=splits, fill_value=0)
    counts.loc["all"] = counts.sum()
    for what, column in (("patients", "patient_id"), ("slides", "slide_id")):
        known = patches[patches[column] != ""]
        if known.empty:
            continue
        num = known.groupby("split")[column].nunique()
        counts.loc[what] = [int(num.get(split, 0)) for split in splits]
    return counts


def _by_split(checked: Checked) -> pd.DataFrame:
    """Slides by split of their labels, then by split of the pretraining."""
    of, places = checked.slides.groupby("split"), checked.centers.groupby("split")
    rows = {
        "slides": of.size(),
        "of them with a label": of["label"].agg(lambda labels: int((labels != "").sum())),
        "slides of pretraining": places["slide_id"].nunique(),
        "patch centers": places.size(),
    }
    table = pd.DataFrame(
        {name: row.astype(int).reindex(SPLITS, fill_value=0) for name, row in rows.items()}
    ).T
    return table.astype(int)


def _excluded(slides: pd.DataFrame) -> str:
    """Slides with excluded tissue, most first; empty without one."""
    some = slides[slides["excluded"] > 0].sort_values("excluded", ascending=False, kind="stable")
    if some.empty:
        return ""
    column = [f"{fraction:.1%}" for fraction in some["excluded"]]
    table = pd.DataFrame({"split": some["split"], "tissue not used": column}).set_index(some["slide_id"])
    return f"<h2>Pen, dark areas, blur and outlined artefacts</h2>{_table(table)}"


def _pictures(checked: Checked) -> str:
    key = "".join(
        f"<span style='background:{color}'></span>{escape(name)}" for name, color in checked.colors.items()
    )
    dots = f"<span style='background:{CENTER}'></span>patch center of pretraining"
    tint = ""
    if (checked.slides["excluded"] > 0).any():
        tint = f"<span style='background:{EXCLUDED}'></span>not used: pen, dark, blur or outlined"
    left = len(checked.slides) - len(checked.pictures)
    more = f"<p>{left} more slides are not shown (check.num_pictures).</p>" if left else ""
    slides = checked.slides.drop_duplicates("slide_id").set_index("slide_id")
    figures = []
    for slide_id, path in checked.pictures.items():
        row = slides.loc[slide_id]
        num = int((checked.patches["slide_id"] == slide_id).sum())
        about = [row["split"], f"patient {row['patient_id']}" if row["patient_id"] else "", row["label"]]
        about += [f"{row['mpp']:.4g} µm/px", f"{num} labeled patches" if num else ""]
        words = ", ".join(str(word) for word in about if word)
        figures.append(
            f"<figure><img src='{escape(path)}' alt='{escape(slide_id)} with tissue and patches' loading=lazy>"
            f"<figcaption><b>{escape(slide_id)}</b><br>{escape(words)}</figcaption></figure>"
        )
    shown = f"<p class=key>Pale: no tissue. {dots}{tint}{key}</p><div class=slides>{''.join(figures)}</div>"
    return shown + more if figures else more
