"""Changelog, citation and the draft for the Journal of Open Source Software agree with the code and its figures."""

from __future__ import annotations

import re
import tomllib
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

import histo_monai
from documentation import release
from histo_monai.pipeline.params.renamed import RENAMED, RENAMED_OPTIONS

CHANGES = ("Breaking", "Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
SECTIONS = (
    *("Summary", "Statement of need", "State of the field", "Software design", "Research impact statement"),
    *("AI usage disclosure", "Acknowledgements", "References"),
)


def _parts(page: str, level: str) -> list[str]:
    return re.findall(rf"(?m)^{level} (.+)$", page)


def _version(root: Path) -> str:
    version: str = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return version


def test_changelog_is_short_and_has_the_kinds_of_keep_a_changelog_in_their_order(root: Path) -> None:
    page = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    assert len(page.split()) <= 2500
    newest, _, day = _parts(page, "##")[0].partition(" - ")
    assert newest == "Unreleased" or (newest == _version(root) and date.fromisoformat(day))
    for version in re.split(r"(?m)^## ", page)[1:]:
        kinds = _parts(version, "###")
        assert kinds == [kind for kind in CHANGES if kind in kinds]


def test_changelog_lists_every_renamed_key_and_option(root: Path) -> None:
    page = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| [^|]+ \| `(\w+)` \| `(\w+)`[^|]* \|$", page)
    assert sorted(rows) == sorted((old, new) for _, old, new in RENAMED)
    for old, new in RENAMED_OPTIONS.items():
        assert re.search(rf"{old}` is `{new}`", page), old


def test_a_release_needs_its_section_at_the_top_of_the_changelog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.1.0"\n')
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "run", lambda *call: "")
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n\n## Unreleased\n\n## 0.1.0\n")
    with pytest.raises(SystemExit, match=r"CHANGELOG\.md does not begin with 0\.1\.0"):
        release.version_everywhere()
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n\n## 0.1.0\n")
    assert release.version_everywhere() == "0.1.0"


def test_citation_names_version_license_and_the_published_method(root: Path) -> None:
    citation = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == _version(root) == histo_monai.__version__
    assert (citation["title"], citation["license"]) == (project["name"], project["license"])
    assert citation["authors"] == project["authors"]
    (paper,) = citation["references"]
    assert [author["family-names"] for author in paper["authors"]] == ["Srinidhi", "Kim", "Chen", "Martel"]
    assert paper["doi"] == "10.1016/j.media.2021.102256"


@pytest.fixture(scope="module")
def joss(root: Path) -> tuple[dict[str, object], str]:
    """Metadata and text of the draft."""
    _, metadata, text = (root / "documentation/joss/paper.md").read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(metadata), text


def test_the_draft_has_metadata_sections_and_length_that_the_journal_asks_for(
    joss: tuple[dict[str, object], str],
) -> None:
    metadata, text = joss
    assert metadata.keys() == {"title", "tags", "authors", "affiliations", "date", "bibliography"}
    assert tuple(_parts(text, "#")) == SECTIONS
    assert 750 <= len(text.split()) <= 1250


def test_every_reference_of_the_draft_is_cited_and_every_citation_resolves(
    joss: tuple[dict[str, object], str], root: Path
) -> None:
    metadata, text = joss
    entries = (root / "documentation/joss" / str(metadata["bibliography"])).read_text(encoding="utf-8")
    keys = re.findall(r"(?m)^@\w+\{(\w+),$", entries)
    assert len(keys) == len(set(keys)) == len(re.findall(r"(?m)^@", entries))
    assert set(re.findall(r"@(\w+)", text)) == set(keys)


def test_figures_of_the_draft_are_measured_ones(joss: tuple[dict[str, object], str], root: Path) -> None:
    """A value with its interval is of one row; a value alone is of a row without an interval."""
    _, text = joss
    table = pd.read_csv(root / "docs/real.csv")
    log = (root / "docs/research_log.md").read_text(encoding="utf-8")
    rows = np.abs(table[["value", "low", "high"]].to_numpy())
    with_interval = re.compile(r"(\.\d{3}) \(-?(\.\d{3}) to (\.\d{3})\)")
    quoted = [match for match in with_interval.finditer(text) if match[0] not in log]
    assert len(quoted) >= 8
    for match in quoted:
        value, *ends = map(float, match.groups())
        errors = [np.abs(rows - [value, *pair]).max(axis=1) for pair in (ends, ends[::-1])]
        assert np.nanmin(errors) < 5.1e-4, match[0]
    alone = re.findall(r"(?<![\d.])\.\d{3}", with_interval.sub("", text))
    assert alone
    values = rows[np.isnan(rows[:, 1]), 0]
    assert all(np.abs(values - float(figure)).min() < 5.1e-4 for figure in alone), alone
