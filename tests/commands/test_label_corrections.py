"""Labels that are corrected on the page of labeled squares: shown, saved, merged once, and none lost."""

from __future__ import annotations

import base64
import itertools
import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
import pytest

from histo_monai.data.readers.own import reader as own
from histo_monai.pipeline.cli import main
from histo_monai.pipeline.commands.label import _of_slide
from histo_monai.pipeline.suggestions.merging import merge_labels
from histo_monai.reports.labeling.answers import Answers
from histo_monai.slides import open_slide
from histo_monai.utils.errors import InputError
from tests.browsers import watched
from tests.hostile.project import OWN, write_slide, write_text

HEADER = "slide_id,y,x,mpp,side_px,label,answer,labeled_by,labeled_at,corrects\n"
TABLE = OWN / "patches.csv"
ROWS = [("a", "a.tif", 60 + 25 * i, 400 - 20 * i, 64, 1.0, 64, 1.0, "tumor", "normal") for i in range(4)]
COLUMNS = ["slide_id", "path", "y", "x", "side_px", "mpp", "patch_px", "slide_mpp", "label", "other_label"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def page_file(folder: Path) -> Path:
    """The page of four squares that are labeled tumor, three of them in patches.csv."""
    write_slide(Path("a.tif"))
    write_text(Path("squares/suggestions.csv"), pd.DataFrame(ROWS, columns=COLUMNS).to_csv(index=False))
    lines = [f"a,{row[2]},{row[3]},1.0,64,tumor,Ada,2026-11-01T10:00:00Z\n" for row in ROWS[:3]]
    write_text(TABLE, "slide_id,y,x,mpp,side_px,label,labeled_by,labeled_at\n" + "".join(lines))
    assert main(("label", "squares")) == 0
    (page,) = folder.glob("squares-*.html")
    return page


def given(name: str, *lines: str) -> Path:
    """A file of answers to square 5, 6 of slide s; a line has label, answer, time and the corrected label."""
    rows = []
    for line in lines:
        label, answer, day, corrects = line.split(",")
        rows.append(f"s,5,6,0.5,64,{label},{answer},{name},2026-11-{day}T10:00:00Z,{corrects}\n")
    write_text(f"{name}.csv", HEADER + "".join(rows))
    return Path(f"{name}.csv")


def labeled(label: str = "tumor") -> Path:
    write_text(
        TABLE, f"slide_id,y,x,mpp,label,split\ns,1,2,0.5,normal,train\ns,5,6,0.50,{label},train\ns,7,8,1,b,\n"
    )
    return TABLE


def history(table: Path) -> list[str]:
    """Labels of the square, the first one first."""
    row = pd.read_csv(table, dtype=str, keep_default_na=False).iloc[1]
    return [one["label"] for one in json.loads(row.get("corrected_from") or "[]")] + [row["label"]]


def test_the_page_shows_labels_beforehand_and_answers_correct_confirm_or_doubt_them(
    page_file: Path, browser: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with watched(browser, page_file) as page:
        assert page.locator("#count").inner_text() == "0 of 4 answered"
        assert page.locator("#fact").inner_text() == "labeled tumor; likelier normal"
        assert page.locator(".patch").nth(3).inner_text() == "tumor, or normal"
        assert page.locator("#classes button").nth(0).inner_text().startswith("1 normal")
        for key in "120":
            page.keyboard.press(key)
        assert page.locator(".patch").nth(0).inner_text() == "normal"
        page.keyboard.press("1")
        with page.expect_download() as download:
            page.locator("#save-csv").click()
        download.value.save_as("labels.csv")
    answers = pd.read_csv("labels.csv", keep_default_na=False)
    assert answers["label"].tolist() == ["normal", "tumor", "", "normal"]
    assert set(answers["corrects"]) == {"tumor"}
    assert main(("label", "--read", "labels.csv")) == 0
    assert "labels_added=0 labels_known=1 answers_without_label=1 labels_corrected=1" in caplog.text
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    of_doubt, of_outline = (next(one for one in warnings if f"csv, row {row} " in one) for row in (4, 5))
    assert f"{TABLE}, row 4 (tumor)" in of_doubt
    assert str(OWN / "annotations/a.geojson") in of_outline
    table = pd.read_csv(TABLE, keep_default_na=False)
    assert table["label"].tolist() == ["normal", "tumor", "tumor"]
    assert table["labeled_at"].tolist()[1:] == ["2026-11-01T10:00:00Z"] * 2
    assert table["labeled_at"][0] == answers["labeled_at"][0]
    (earlier,) = json.loads(table["corrected_from"][0])
    assert earlier == {"label": "tumor", "labeled_by": "Ada", "labeled_at": "2026-11-01T10:00:00Z"}
    assert table["corrected_from"].tolist()[1:] == ["", ""]


def test_a_served_page_saves_what_an_answer_corrects(page_file: Path) -> None:
    squares = [
        {"slide_id": "a", "y": row[2], "x": row[3], "mpp": 1.0, "side_px": 64, "label": row[8]}
        for row in ROWS[:2]
    ]
    path = Path("x.answers.csv")
    for known, asked in enumerate(({"kind": "label", "label": "normal"}, {"kind": "artefact"})):
        message = {"known": known, "numbers": [known], **asked}
        Answers(path, squares).reply(json.dumps(message).encode())
    assert merge_labels([path], TABLE) == (0, 0, 1, 1)
    before = TABLE.read_bytes()
    assert merge_labels([path], TABLE) == (0, 1, 1, 0)
    assert TABLE.read_bytes() == before
    assert pd.read_csv(TABLE)["label"].tolist() == ["normal", "tumor", "tumor"]


def test_answers_saved_before_there_were_corrections_are_read_and_go_on() -> None:
    path, square = Path("x.answers.csv"), {"slide_id": "s", "y": 1, "x": 2, "mpp": 0.5, "side_px": 64}
    old = "slide_id,y,x,mpp,side_px,label,answer,labeled_by,labeled_at,step\ns,1,2,0.5,64,tumor,label,,,1\n"
    path.write_text(old)
    answers = Answers(path, [square, square | {"y": 3}])
    assert answers.num_answered == 1
    answers.reply(b'{"known": 1, "numbers": [1], "kind": "label", "label": "normal"}')
    assert path.read_text().startswith(old)
    assert merge_labels([path], TABLE) == (2, 0, 0, 0)
    with pytest.raises(InputError, match="no column corrects"):
        Answers(path, [square | {"label": "normal"}])


def test_a_correction_is_made_once_and_all_else_of_the_table_stays() -> None:
    table, path = labeled(), given("ada", "normal,label,02,tumor")
    before = pd.read_csv(table, dtype=str, keep_default_na=False)
    assert merge_labels([path], table) == (0, 0, 0, 1)
    after = pd.read_csv(table, dtype=str, keep_default_na=False)
    assert after["label"].tolist() == ["normal", "normal", "b"]
    others = [name for name in before if name != "label"]
    assert after[others].equals(before[others])
    assert history(table) == ["tumor", "normal"]
    content = table.read_bytes()
    for _ in range(2):
        assert merge_labels([path], table) == (0, 1, 0, 0)
        assert table.read_bytes() == content


def test_rounds_of_corrections_end_with_the_last_in_any_order_and_repetition() -> None:
    """Also with the answer that first gave the label, which `next` reads again in each round."""
    files = [
        given("first", "tumor,label,01,"),
        given("kept", "tumor,label,02,tumor"),
        given("second", "normal,label,03,tumor"),
        given("third", "tumor,label,04,normal"),
        given("fourth", "stroma,label,05,tumor"),
    ]
    for order in itertools.permutations(files):
        merge_labels(order, labeled())
        assert history(TABLE) == ["tumor", "normal", "tumor", "stroma"]
    labeled()
    for num in range(1, len(files) + 1):
        merge_labels(files[:num], TABLE)
    content = TABLE.read_bytes()
    for path in np.random.default_rng(0).permutation(files):
        merge_labels([Path(path)], TABLE)
    assert history(TABLE) == ["tumor", "normal", "tumor", "stroma"]
    assert TABLE.read_bytes() == content


@pytest.mark.parametrize("answer", ["normal,label,02,stroma", "stroma,label,02,stroma"])
def test_a_label_that_was_changed_meanwhile_is_refused_by_naming_both_rows(
    answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = labeled().read_bytes()
    assert main(("label", "--read", str(given("ada", answer)))) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f"{TABLE}, row 3 (tumor)" in line
    assert "ada.csv, row 2" in line
    assert "Fix: " in line
    assert TABLE.read_bytes() == before


def test_two_people_who_correct_one_label_differently_are_both_named() -> None:
    before = labeled().read_bytes()
    files = [given("ada", "normal,label,02,tumor"), given("bob", "stroma,label,03,tumor")]
    with pytest.raises(InputError, match=r"patches\.csv, row 3 \(normal\) and bob\.csv, row 2 \(stroma\)"):
        merge_labels(files, TABLE)
    assert TABLE.read_bytes() == before
    assert merge_labels(files[:1], TABLE) == (0, 0, 0, 1)
    with pytest.raises(InputError, match="changed meanwhile"):
        merge_labels(files[1:], TABLE)


def test_a_label_that_was_typed_back_by_hand_is_not_corrected_again() -> None:
    path = given("ada", "normal,label,02,tumor")
    merge_labels([path], labeled())
    text = TABLE.read_text().replace("0.50,normal", "0.50,tumor")
    TABLE.write_text(text)
    with pytest.raises(InputError, match="changed meanwhile"):
        merge_labels([path], TABLE)
    assert TABLE.read_text() == text


def test_a_correction_of_an_outline_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    path = given("ada", "normal,label,02,tumor")
    path.write_text(path.read_text() + path.read_text().splitlines()[1].replace("s,5,6", "s,50,60"))
    assert merge_labels([path], labeled())[3] == 1
    assert "row 3" in caplog.text
    assert len(pd.read_csv(TABLE)) == 3


@pytest.mark.parametrize("cell", ["tumor", "{}", "[1]", '[{"label": "tumor"}]'])
def test_earlier_labels_that_cannot_be_read_are_one_line(cell: str) -> None:
    merge_labels([given("ada", "normal,label,02,tumor")], labeled())
    table = pd.read_csv(TABLE, dtype=str, keep_default_na=False)
    table.loc[1, "corrected_from"] = cell
    table.to_csv(TABLE, index=False)
    with pytest.raises(InputError, match=r"row 3, column corrected_from.*Fix: "):
        merge_labels([given("bob", "tumor,label,03,normal")], TABLE)


def test_a_corrected_table_is_indexed_by_its_new_labels() -> None:
    write_slide(OWN / "s.tif", mpp=1.0)
    write_text(OWN / "slides.csv", "slide_id,path,patient_id\ns,s.tif,p\n")
    write_text(TABLE, "slide_id,y,x,mpp,side_px,label\ns,90,90,1.0,64,tumor\ns,200,200,1.0,64,normal\n")
    path = given("ada", "normal,label,02,tumor")
    path.write_text(path.read_text().replace("s,5,6,0.5", "s,90,90,1.0"))
    merge_labels([path], TABLE)
    settings = {"patch_px": 64, "region_mpp": 1.0, "min_region_fraction": 0.5, "num_per_region": 8}
    table = own.labeled_patches(OWN, **settings).table
    assert table["label"].tolist() == ["normal", "normal"]
    assert "corrected_from" not in table


def test_squares_of_several_sizes_each_show_their_own_field(tmp_path: Path) -> None:
    """The frame on the page is the middle third of a picture: it must be the labeled square."""
    pixels = np.full((512, 640, 3), 200, np.uint8)
    for x, side in ((100, 32), (400, 128)):
        pixels[200 - side // 2 : 200 + side // 2, x - side // 2 : x + side // 2] = (90, 40, 110)
    write_slide(Path("a.tif"), pixels=pixels)
    rows = [
        ("a", "a.tif", 200, x, side, 1.0, side, 1.0, "tumor", "normal") for x, side in ((100, 32), (400, 128))
    ]
    squares = pd.DataFrame(rows, columns=COLUMNS).assign(group=0)
    with open_slide("a.tif", 1.0) as slide:
        patches = _of_slide(slide, "a", squares)
    for patch in (patches[0], patches[1]):
        content = base64.b64decode(patch["picture"].partition(",")[2])
        gray = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_GRAYSCALE)
        middle = gray[gray.shape[0] // 2]
        dark = np.flatnonzero(middle < 130)
        assert len(dark) / len(middle) == pytest.approx(1 / 3, abs=0.03)
        assert dark[0] / len(middle) == pytest.approx(1 / 3, abs=0.03)
