"""`label`: a page that works from disk by mouse and keyboard, and its labels in patches.csv, none lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from documentation import recordings
from histo_monai.pipeline.cli import main
from histo_monai.pipeline.commands.next import _write_page
from histo_monai.pipeline.suggestions.merging import merge_labels
from histo_monai.reports.labeling.page import page as labeling_page
from histo_monai.slides.annotations import Frame, read_annotations
from histo_monai.utils.errors import InputError
from tests.browsers import watched
from tests.hostile.project import write_slide, write_text

CLASSES = ("tumor", '<b>"normal", x</b>')
NUM = 30
COLUMNS = ["slide_id", "path", "y", "x", "side_px", "mpp", "patch_px", "slide_mpp"]
PIXEL = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="
HEADER = "slide_id,y,x,mpp,side_px,label,answer,labeled_by,labeled_at\n"


@pytest.fixture
def page_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page of 30 squares on two slides."""
    monkeypatch.chdir(tmp_path)
    rows = []
    for name in ("a", "b"):
        write_slide(Path(f"{name}.tif"), seed=ord(name))
        rows += [(name, f"{name}.tif", 60 + 25 * i, 400 - 20 * i, 64, 1.0, 64, 1.0) for i in range(NUM // 2)]
    table = pd.DataFrame(rows, columns=COLUMNS)
    write_text(Path("squares/suggestions.csv"), table.to_csv(index=False))
    assert main(("label", "squares", "--classes", *CLASSES)) == 0
    (page,) = tmp_path.glob("squares-*.html")
    return page


def saved(page: Page, button: str, path: Path) -> Path:
    with page.expect_download() as download:
        page.locator(button).click()
    download.value.save_as(path)
    return path


def answered(page: Page) -> str:
    return page.locator("#count").inner_text()


def test_by_keyboard_alone_all_are_labeled_saved_and_read(page_file: Path, browser: Any) -> None:
    with watched(browser, page_file) as page:
        for number in range(NUM):
            page.keyboard.press("x" if number == 4 else "0" if number == 9 else str(1 + number % 2))
        assert answered(page) == f"{NUM} of {NUM} answered"
        saved(page, "#save-csv", Path("labels.csv"))
    table = pd.read_csv("labels.csv", keep_default_na=False)
    wanted = [CLASSES[number % 2] for number in range(NUM)]
    wanted[4] = wanted[9] = ""
    assert table["label"].tolist() == wanted
    assert table["answer"].value_counts().to_dict() == {"label": NUM - 2, "artefact": 1, "cannot tell": 1}
    assert main(("label", "--read", "labels.csv")) == 0
    patches = pd.read_csv("data/raw/own/patches.csv", keep_default_na=False)
    assert patches["label"].tolist() == [label for label in wanted if label]
    assert set(patches["side_px"]) == {64}


def test_a_recording_of_the_page_shows_each_answer(page_file: Path, browser: Any, tmp_path: Path) -> None:
    context = browser.new_context(viewport=recordings.SIZE)
    page = context.new_page()
    page.goto(page_file.as_uri())
    recorded = recordings.record_labels(page, "121")
    assert answered(page) == f"3 of {NUM} answered"
    context.close()
    shown = [picture.tobytes() for picture in recorded.pictures]
    assert len(shown) == 6  # before the first answer, after each, undone, and given again
    assert shown[2] != shown[3]
    assert shown[3] == shown[5]
    assert sum(recorded.shown_ms) == 9000
    recorded.save(tmp_path / "label.webp")
    with Image.open(tmp_path / "label.webp") as file:
        assert (file.width, file.n_frames) == (recordings.SHOWN_WIDTH, 6)


def test_undo_goes_back_to_the_first_label_and_a_new_visit_goes_on(page_file: Path, browser: Any) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(page_file.as_uri())
    page.fill("#by", "Ada")
    page.locator(".patch").first.click()
    for key in "12211":
        page.keyboard.press(key)
    assert answered(page).startswith("5 of")
    page.close()  # Without a word, as a browser that is ended.
    page = context.new_page()
    page.goto(page_file.as_uri())
    assert answered(page).startswith("5 of")
    assert page.locator("#by").input_value() == "Ada"
    page.locator(".patch").nth(5).click()
    for left in (4, 3, 2, 1, 0, 0):
        page.keyboard.press("u")
        assert answered(page).startswith(f"{left} of")
    context.close()


def test_what_was_answered_last_is_undone_and_nothing_else_is_selected(page_file: Path, browser: Any) -> None:
    with watched(browser, page_file) as page:
        page.locator(".patch").first.click()
        for key in ("1", "1", "1", "u", "u"):
            page.keyboard.press(key)
        chosen = (
            "[...document.querySelectorAll('.patch')].flatMap((p, i) => p.ariaSelected === 'true' ? [i] : [])"
        )
        assert page.evaluate(chosen) == [1]
        for _ in range(3):
            page.keyboard.press("Shift+ArrowRight")
        page.keyboard.press("Shift+ArrowLeft")
        assert page.evaluate(chosen) == [1, 2, 3]
        page.keyboard.down("1")
        page.keyboard.down("1")  # A key that is held down repeats.
        page.keyboard.up("1")
        assert answered(page).startswith("4 of")


def test_two_tabs_lose_no_answer_and_new_classes_stay(page_file: Path, browser: Any) -> None:
    context = browser.new_context()
    first, second = context.new_page(), context.new_page()
    for page in (first, second):
        page.goto(page_file.as_uri())
    first.keyboard.press("1")
    second.wait_for_function("document.getElementById('count').innerText.startsWith('1 of')")
    second.fill("#name-of-class", "third")
    second.keyboard.press("Enter")
    second.keyboard.press("ArrowRight")
    second.keyboard.press("3")
    first.wait_for_function("document.getElementById('classes').innerText.includes('third')")
    assert main(("label", "squares", "--classes", *CLASSES, "fourth")) == 0
    first.reload()
    text = first.locator("#classes").inner_text()
    assert all(name in text for name in (*CLASSES, "third", "fourth"))
    assert answered(first).startswith("2 of")
    context.close()


def test_a_browser_without_storage_is_reported(page_file: Path, browser: Any) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.add_init_script("Storage.prototype.setItem = () => { throw new Error('full'); }")
    page.goto(page_file.as_uri())
    page.keyboard.press("1")
    assert "save the CSV" in page.locator("#warning").inner_text()
    assert answered(page).startswith("1 of")
    context.close()


def test_several_get_one_label_and_classes_can_be_added(page_file: Path, browser: Any) -> None:
    with watched(browser, page_file) as page:
        page.fill("#name-of-class", "third")
        page.keyboard.press("Enter")
        page.locator(".patch").nth(2).click()
        page.locator(".patch").nth(6).click(modifiers=["Shift"])
        page.keyboard.press("3")
        assert answered(page).startswith("5 of")
        assert "third (5)" in page.locator("#classes").inner_text()
        page.keyboard.press("Control+z")
        assert answered(page).startswith("0 of")


def test_squares_for_qupath_lie_where_the_patches_lie(page_file: Path, browser: Any) -> None:
    with watched(browser, page_file) as page:
        page.keyboard.press("1")
        page.keyboard.press("2")
        page.locator(".patch").first.click()
        saved(page, "#save-geojson", Path("a.geojson"))
    regions, _ = read_annotations(Path("a.geojson"), frame=Frame((0, 0), "bounds"))
    assert [region.label for region in regions] == list(CLASSES)
    for number, region in enumerate(regions):
        center = (region.exterior_yx.min(axis=0) + region.exterior_yx.max(axis=0)) / 2
        assert center == pytest.approx([60 + 25 * number, 400 - 20 * number])
        assert np.ptp(region.exterior_yx, axis=0) == pytest.approx([64, 64])


@pytest.mark.parametrize("width", [360, 1200, 2560])
def test_the_page_fits_any_width_and_shows_the_tissue(page_file: Path, browser: Any, width: int) -> None:
    with watched(browser, page_file, width=width) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.wait_for_function("document.querySelector('.patch img').naturalWidth > 0")
        assert page.evaluate("document.getElementById('picture').naturalWidth") > 100


def test_a_thousand_patches_are_there_and_pictures_are_decoded_when_they_come_into_view(
    tmp_path: Path, browser: Any
) -> None:
    slides = {"s": {"size_yx": [9000, 9000], "bounds_yx": [0, 0], "picture": PIXEL}}
    patches = [
        {
            "slide_id": "s",
            "y": float(i),
            "x": 1.0,
            "mpp": 1.0,
            "side_px": 64,
            "level0_side": 64.0,
            "group": i // 5,
        }
        | {"picture": PIXEL}
        for i in range(1000)
    ]
    path = tmp_path / "page.html"
    path.write_text(labeling_page(patches, slides, ["a", "b"], "key"))
    with watched(browser, path) as opened:
        images = opened.locator(".patch img")
        with_picture = "[...document.querySelectorAll('.patch img')].filter((image) => image.src).length"
        assert images.count() == 1000
        assert answered(opened) == "0 of 1000 answered"
        assert 0 < opened.evaluate(with_picture) < 400
        images.last.scroll_into_view_if_needed()
        expect(images.last).to_have_attribute("src", PIXEL)
        opened.keyboard.press("Shift+Digit1")
        assert answered(opened) == "5 of 1000 answered"


def rows(*lines: str) -> str:
    return HEADER + "".join(f"{line}\n" for line in lines)


def test_labels_of_two_people_and_two_rounds_merge_and_nothing_is_lost(tmp_path: Path) -> None:
    into, ada, bob = (tmp_path / name for name in ("patches.csv", "ada.csv", "bob.csv"))
    into.write_text("slide_id,y,x,mpp,label,split\ns,10,20,0.50,tumor,train\ns,30.004,40,0.50,normal,\n")
    ada.write_text(
        rows("s,50,60,0.5,64,tumor,label,Ada,2026-11-27T10:00:00Z", "s,30,40,0.5,64,normal,label,Ada,t")
    )
    bob.write_text(
        rows(
            "s,50,60,0.5,64,tumor,label,Bob,t",
            "s,70,80,0.5,64,,cannot tell,Bob,t",
            "t,1,2,0.5,64,normal,label,Bob,t",
        )
    )
    assert merge_labels([ada, bob], into) == (2, 2, 1, 0)
    table = pd.read_csv(into, dtype=str, keep_default_na=False)
    assert table[["y", "label", "split"]].iloc[:2].to_numpy().tolist() == [
        ["10", "tumor", "train"],
        ["30.004", "normal", ""],
    ]
    assert table[["slide_id", "y", "label", "labeled_by"]].iloc[2:].to_numpy().tolist() == [
        ["s", "50", "tumor", "Ada"], ["t", "1", "normal", "Bob"],
    ]  # fmt: skip
    before = into.read_bytes()
    assert merge_labels([bob, ada], into) == (0, 4, 1, 0)
    assert into.read_bytes() == before


def test_another_side_or_resolution_is_another_square(tmp_path: Path) -> None:
    into, path = tmp_path / "patches.csv", tmp_path / "labels.csv"
    into.write_text("slide_id,y,x,mpp,side_px,label\ns,1,2,0.5,64,tumor\ns,3,4,0.5,,tumor\n")
    path.write_text(
        rows("s,1,2,0.5,512,normal,label,,", "s,1,2,1.0,64,normal,label,,", "s,3,4,0.5,64,tumor,label,,")
    )
    assert merge_labels([path], into) == (2, 1, 0, 0)


@pytest.mark.parametrize("other", ["s,5,6,0.5,64,,artefact,Bob,", "s,5,6,0.5,64,,cannot tell,Bob,"])
def test_a_label_and_an_answer_without_one_contradict_each_other(tmp_path: Path, other: str) -> None:
    into, first, second = (tmp_path / name for name in ("patches.csv", "ada.csv", "bob.csv"))
    first.write_text(rows("s,5,6,0.5,64,tumor,label,Ada,"))
    second.write_text(rows(other))
    with pytest.raises(InputError, match=r"ada\.csv, row 2 .*bob\.csv, row 2 .*two answers"):
        merge_labels([first, second], into)


def test_a_link_is_not_replaced(tmp_path: Path) -> None:
    """Neither a broken one, as of a cache that is away, nor one to a table that others use."""
    path, shared = tmp_path / "labels.csv", tmp_path / "shared.csv"
    path.write_text(rows("s,5,6,0.5,64,tumor,label,,"))
    into = tmp_path / "patches.csv"
    into.symlink_to(shared)
    for _ in range(2):
        with pytest.raises(InputError, match="is a link"):
            merge_labels([path], into)
        assert into.is_symlink()
        shared.write_text("slide_id,y,x,mpp,label\n")


@pytest.mark.parametrize("is_in_table", [True, False])
def test_two_labels_of_one_square_are_named_and_nothing_is_written(tmp_path: Path, is_in_table: bool) -> None:
    into, first, second = (tmp_path / name for name in ("patches.csv", "ada.csv", "bob.csv"))
    first.write_text(rows("s,1,1,0.5,64,tumor,label,,", "s,5,6,0.5,64,tumor,label,,"))
    second.write_text(rows("s,5,6,0.5,64,normal,label,,"))
    if is_in_table:
        merge_labels([first], into)
    before = into.read_bytes() if is_in_table else None
    with pytest.raises(InputError) as error:
        merge_labels([second] if is_in_table else [first, second], into)
    source = "patches.csv, row 3" if is_in_table else "ada.csv, row 3"
    assert source in str(error.value)
    assert "bob.csv, row 2" in str(error.value)
    assert (into.read_bytes() if into.exists() else None) == before


HOSTILE = {
    "nothing": "",
    "a header alone": HEADER,
    "a page": "<html></html>\n",
    "GeoJSON": json.dumps({"type": "FeatureCollection", "features": []}),
    "no place": "slide_id,mpp,side_px,label,answer\ns,0.5,64,tumor,label\n",
    "no answer": "slide_id,y,x,mpp,side_px,label\ns,1,2,0.5,64,tumor\n",
    "another answer": rows("s,1,2,0.5,64,tumor,yes,,"),
    "an empty label": rows("s,1,2,0.5,64,,label,,"),
    "a place in words": rows("s,top,2,0.5,64,tumor,label,,"),
    "a negative place": rows("s,-1,2,0.5,64,tumor,label,,"),
    "an infinite place": rows("s,inf,2,0.5,64,tumor,label,,"),
    "µm/px in words": rows("s,1,2,fine,64,tumor,label,,"),
    "a side of nothing": rows("s,1,2,0.5,0,tumor,label,,"),
    "no slide": rows(",1,2,0.5,64,tumor,label,,"),
    "a class that reads as missing": rows("s,1,2,0.5,64,NaN,label,,"),
    "an invisible character": rows("s,1,2,0.5,64,tu\u200bmor,label,,"),
    "a row that is too long": rows("s,1,2,0.5,64,tumor,label,,,,"),
    "other bytes": "\udcff\udcfe",
}


@pytest.mark.parametrize("what", list(HOSTILE))
def test_a_file_that_is_none_of_the_pages_is_one_line(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, into = tmp_path / "labels.csv", tmp_path / "patches.csv"
    path.write_bytes(HOSTILE[what].encode("utf-8", "surrogateescape"))
    assert main(("label", "--read", str(path), "--into", str(into))) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("histo-monai label: error: ")
    assert "labels.csv" in line
    assert "Fix: " in line
    assert not into.exists()


@pytest.mark.parametrize("name", ["data/raw/own/patches.csv", "notes.html", "notes.txt"])
def test_a_page_replaces_no_file_but_itself(
    page_file: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_text(Path(name), "mine\n")
    assert main(("label", "squares", "--output", name)) == 1
    assert "Fix: " in capsys.readouterr().err
    assert Path(name).read_text() == "mine\n"
    assert main(("label", "squares", "--output", str(page_file))) == 0


def test_squares_that_are_larger_than_a_patch_have_no_page(
    page_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pd.read_csv("squares/suggestions.csv").assign(side_px=512)
    write_text(Path("large/suggestions.csv"), table.to_csv(index=False))
    assert main(("label", "large")) == 1
    assert "suggest without --side-um" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("slide_id,y,x,mpp,score\ns,1,2,0.5,0.25\n", "has scores"),
        ("slide_id,y,x,mpp,label,origin\ns,1,2,0.5,tumor,bounds\n", "origin bounds"),
    ],
)
def test_labels_do_not_join_what_they_cannot_be_compared_with(
    tmp_path: Path, table: str, message: str
) -> None:
    into, path = tmp_path / "patches.csv", tmp_path / "labels.csv"
    into.write_text(table)
    path.write_text(rows("s,5,6,0.5,64,tumor,label,,"))
    with pytest.raises(InputError, match=message):
        merge_labels([path], into)


def test_a_key_keeps_its_class_on_the_next_page(page_file: Path) -> None:
    def classes() -> list[str]:
        text = page_file.read_text().partition('<script type="application/json" id="data">')[2]
        return list(json.loads(text.partition("</script>")[0].replace("\\u003c", "<"))["classes"])

    assert classes() == list(CLASSES)
    write_text(Path("data/raw/own/patches.csv"), "slide_id,y,x,mpp,label\na,60,400,1.0,adipose\n")
    assert main(("label", "squares")) == 0
    assert classes() == [*CLASSES, "adipose"]
    assert main(("label", "squares", "--classes", "stroma")) == 0
    assert classes() == ["stroma", *CLASSES, "adipose"]


def test_the_page_of_a_project_that_has_moved_is_the_same(
    page_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = tmp_path.with_name(f"{tmp_path.name}-moved")
    tmp_path.rename(moved)
    monkeypatch.chdir(moved)
    assert main(("label", "squares")) == 0
    assert [path.name for path in moved.glob("squares-*.html")] == [page_file.name]


def test_served_answers_go_into_no_other_table(page_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("label", "squares", "--serve", "--into", "second.csv")) == 1
    assert "--into second.csv: `histo-monai next` adds all answers of --serve" in capsys.readouterr().err


def test_keys_of_the_number_pad_move_without_num_lock(page_file: Path, browser: Any) -> None:
    with watched(browser, page_file) as page:
        page.keyboard.press("Numpad6")  # here an arrow to the right
        assert answered(page) == f"0 of {NUM} answered"
        assert page.locator("#about").inner_text().startswith("2 of")


def test_the_page_of_a_round_has_the_classes_of_outlines(page_file: Path) -> None:
    shutil.copytree("squares", "data/suggestions/first")
    _, how = _write_page(None, ["stroma"], pd.DataFrame({"label": ["outlined", "", None]}))
    assert "--classes stroma outlined;" in how
