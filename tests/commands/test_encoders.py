"""The command `encoders`: the table of published encoders."""

from __future__ import annotations

from dataclasses import fields

import pytest
import yaml

from histo_monai.models.encoders.published import PUBLISHED
from histo_monai.models.settings import EncoderSettings
from histo_monai.pipeline.cli import main


def test_the_table_has_one_line_for_every_encoder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["encoders"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split()[:2] == ["name", "features"]
    assert [line.split()[0] for line in lines] == list(PUBLISHED)
    for line, row in zip(lines, PUBLISHED.values(), strict=True):
        assert line.endswith(row.source)
        assert (row.license or "see source") in line


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_row_states_every_fact_and_its_sources(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["encoders", name]) == 0
    shown = capsys.readouterr().out
    row = PUBLISHED[name]
    for fact in (row.architecture, str(row.num_features), row.output, row.source, row.sources):
        assert fact in shown
    assert all(f"{key}={value}" in shown for key, value in row.arguments.items())
    section = yaml.safe_load(shown[shown.index("encoder: {") :])["encoder"]
    assert (section.pop("name"), section.pop("weights"), section.pop("sha256")) == (name, "FILE", "DIGEST")
    assert {*section} == {field.name for field in fields(EncoderSettings)} - {"name", "weights", "sha256"}
    assert set(section.values()) == {None}


def test_an_unknown_name_is_one_line_with_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["encoders", "uni2h"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(
        "encoders: 'uni2h' is not in the table. Fix: name uni2-h. [docs/commands.md#encoders]"
    )
