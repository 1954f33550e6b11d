"""`label --serve`: each answer is on the disk before the page shows it, also if browser or server is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import Page, expect

from documentation.recordings import installed_browser
from histo_monai.pipeline.cli import main
from histo_monai.pipeline.suggestions.merging import merge_labels
from histo_monai.reports.labeling.answers import Answers
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import OutputError
from tests.hostile.project import write_slide, write_text

CLASSES = ("tumor", '<b>"normal", x</b>')
NUM = 12
GROUPS = [3, 1, 3, 1, 2, 2, 3, 1, 3, 1, 2, 3]
COLUMNS = ["slide_id", "path", "y", "x", "side_px", "mpp", "patch_px", "slide_mpp"]
SQUARES = [{"slide_id": "s", "y": 10.5 * i, "x": 1 / 3 + i, "mpp": 0.2521, "side_px": 64} for i in range(NUM)]


@pytest.fixture
def squares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of suggestions: twelve squares of a slide, in three clusters."""
    monkeypatch.chdir(tmp_path)
    write_slide(Path("a.tif"))
    rows = [("a", "a.tif", 60 + 25 * i, 400 - 20 * i, 64, 1.0, 64, 1.0) for i in range(NUM)]
    table = pd.DataFrame(rows, columns=COLUMNS).assign(cluster=GROUPS)
    write_text(Path("squares/suggestions.csv"), table.to_csv(index=False))
    return tmp_path


@contextmanager
def served() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Address of the page, and the process that serves it."""
    command = [sys.executable, "-m", "histo_monai", "label", "squares", "--classes", *CLASSES, "--serve"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # As in a terminal: the tests may run where Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[0], process
        finally:
            process.kill()


def opened(browser: Any, address: str) -> tuple[Page, list[str]]:
    """The page, and what it complains of."""
    page = browser.new_context().new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(address)
    expect(page.locator("#count")).not_to_be_empty()
    return page, complaints


def wait_for(page: Page, num: int) -> None:
    expect(page.locator("#count")).to_have_text(f"{num} of {NUM} answered")


def answers_file() -> Path:
    (path,) = Path().glob("squares-*.answers.csv")
    return path


def labels_of(path: Path) -> list[str]:
    """Labels that `label --read` adds."""
    assert main(("label", "--read", str(path), "--into", "into.csv")) == 0
    return pd.read_csv("into.csv", keep_default_na=False)["label"].tolist()


def test_each_answer_is_in_the_file_and_is_read_as_it_was_given(squares: Path, browser: Any) -> None:
    with served() as (address, process):
        page, complaints = opened(browser, address)
        page.fill("#by", "Ada")
        page.locator(".patch").first.click()
        keys = ["1", "2", "0", "x", "u", "1", *"21212121"]
        for key in keys:
            page.keyboard.press(key)
        wait_for(page, NUM)
        assert "histo-monai next" in page.locator("#saved").inner_text()
        assert complaints == []
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"squares_answered={NUM}" in log
    assert f"label --read {Path.cwd() / answers_file()}" in log
    table = pd.read_csv(answers_file(), keep_default_na=False)
    assert len(table) == len(keys)  # the artefact and its undoing, too
    assert set(table["labeled_by"]) == {"Ada"}
    assert table["labeled_at"].str.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ").all()
    wanted = [CLASSES["12".index(key)] for key in ["1", "2", "1", *"21212121"]]
    assert labels_of(answers_file()) == wanted


def test_two_tabs_lose_no_answer_and_do_not_replace_one_that_they_do_not_show(
    squares: Path, browser: Any
) -> None:
    with served() as (address, _):
        (first, _), (second, _) = opened(browser, address), opened(browser, address)
        first.keyboard.press("1")
        wait_for(first, 1)
        second.keyboard.press("2")  # the same square, which the first has answered
        wait_for(second, 1)
        assert "Not saved" in second.locator("#warning").inner_text()
        assert "tumor (1)" in second.locator("#classes").inner_text()
        second.keyboard.press("ArrowRight")
        second.keyboard.press("2")
        wait_for(second, 2)
        first.keyboard.press("u")  # not of an answer that it does not show
        wait_for(first, 2)
        first.keyboard.press("u")
        wait_for(first, 1)
        third, _ = opened(browser, address)
        wait_for(third, 1)
    assert labels_of(answers_file()) == ["tumor"]


def test_a_killed_server_loses_no_answer_that_the_page_shows(squares: Path, browser: Any) -> None:
    with served() as (address, process):
        page, _ = opened(browser, address)
        for _ in range(5):
            page.keyboard.press("1")  # Keys that are pressed faster than answers are saved wait for them.
        wait_for(page, 5)
        process.kill()
        process.wait()
        page.keyboard.press("2")
        expect(page.locator("#warning")).to_contain_text("server has ended")
        assert page.locator("#count").inner_text().startswith("5 of")
    with served() as (address, _):
        page, _ = opened(browser, address)
        wait_for(page, 5)
        page.keyboard.press("2")
        wait_for(page, 6)
        for left in (5, 4, 3, 2, 1, 0):
            page.keyboard.press("u")
            wait_for(page, left)
    assert merge_labels([answers_file()], squares / "none.csv") == (0, 0, 0, 0)


def test_a_server_that_is_killed_among_answers_has_all_but_the_one_being_given(
    squares: Path, browser: Any
) -> None:
    with served() as (address, process):
        page, _ = opened(browser, address)
        page.evaluate(
            """() => { const press = () => document.dispatchEvent(
                 new KeyboardEvent("keydown", { key: "1", code: "Digit1", bubbles: true }));
               setInterval(press, 5); }"""
        )
        time.sleep(0.04)
        process.kill()
        process.wait()
        expect(page.locator("#warning")).to_contain_text("server has ended")
        shown = int(page.locator("#count").inner_text().split()[0])
    lines = answers_file().read_text().splitlines() if list(Path().glob("*.answers.csv")) else []
    squares_in_file = pd.DataFrame([line.split(",")[:3] for line in lines[1:]]).drop_duplicates()
    assert shown <= len(squares_in_file) <= shown + 1


def test_a_killed_browser_loses_at_most_the_answer_being_given(
    squares: Path, tmp_path: Path, browser: Any
) -> None:
    program = installed_browser()
    assert program
    command = [
        *(program, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"),
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    with (
        served() as (address, _),
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process,
    ):
        assert process.stderr is not None
        line = next(line for line in process.stderr if "DevTools listening on" in line)
        attached = browser.browser_type.connect_over_cdp(line.split()[-1])
        page, _ = opened(attached, address)
        for number in range(7):
            wait_for(page, number)
            page.keyboard.press("2")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert len(labels_of(answers_file())) in (6, 7)


@pytest.mark.parametrize("by_mouse", [True, False])
def test_a_group_is_labeled_at_once_and_undone_at_once(squares: Path, browser: Any, by_mouse: bool) -> None:
    order = np.argsort([GROUPS.index(group) for group in GROUPS], kind="stable")  # side by side on the page
    with served() as (address, _):
        page, complaints = opened(browser, address)
        page.keyboard.press("2")
        wait_for(page, 1)
        if by_mouse:
            page.locator("#group").click()
            page.locator("#classes button").first.click()
        else:
            page.keyboard.press("Shift+Digit1")
        wait_for(page, GROUPS.count(3))
        page.keyboard.press("Shift+X")  # the next group
        wait_for(page, GROUPS.count(3) + GROUPS.count(1))
        page.keyboard.press("u")
        wait_for(page, GROUPS.count(3))
        assert complaints == []
    table = pd.read_csv(answers_file(), keep_default_na=False)
    assert table["step"].tolist() == [1] + [2] * 4 + [3] * 4 + [4] * 4
    rows = [60 + 25 * number for number in order]
    assert table["y"].tolist() == rows[:5] + rows[5:9] * 2
    assert labels_of(answers_file()) == [CLASSES[1], *[CLASSES[0]] * 4]


def test_a_second_server_of_a_page_is_refused_in_one_line(
    squares: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with served() as (_, process):
        assert main(("label", "squares", "--classes", *CLASSES, "--serve")) == 1
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert f"by process {process.pid}" in error
        assert "Fix: " in error


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": None}, 403),
        ({"Content-Type": "text/plain"}, 403),
        ({"token": "A" * 22}, 404),
        ({"Content-Length": "-1"}, 413),
        ({"Content-Length": str(2**40)}, 413),
        ({"Content-Length": "9" * 5000}, 413),  # more digits than Python reads as a number
        ({"body": b"\xff"}, 409),
        ({"body": b"[]"}, 409),
        ({"body": {"known": -1}}, 409),
        ({"body": {"known": 0, "numbers": [NUM], "kind": "artefact"}}, 409),
        ({"body": {"known": 0, "numbers": [0, 0], "kind": "artefact"}}, 409),
        ({"body": {"known": 0, "numbers": [0], "kind": "label", "label": " "}}, 409),
        ({"body": {"known": 0, "numbers": [0], "kind": "undone"}}, 409),
        ({"body": {"known": 0, "numbers": [0], "kind": "label", "label": "tu\nmor"}}, 409),
        ({"body": {"known": 0, "numbers": [0], "kind": "label", "label": "NaN"}}, 409),
        ({"body": {"known": 0, "numbers": [0], "kind": "label", "label": "t" * 61}}, 409),
    ],
)
def test_what_is_no_answer_of_the_page_is_not_saved(change: dict[str, Any], status: int, site: str) -> None:
    found = re.match(r"http://127\.0\.0\.1:(\d+)/([\w-]+)/", site)
    assert found
    port, token = found.groups()
    body = change.pop("body", {"known": 0, "numbers": [0], "kind": "artefact"})
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {
        **{"Host": f"127.0.0.1:{port}", "Origin": f"http://127.0.0.1:{port}"},
        **{"Content-Type": "application/json", "Content-Length": str(len(content))},
    }
    path = f"/{change.pop('token', token)}/"
    connection = HTTPConnection("127.0.0.1", int(port))
    connection.putrequest("POST", path, skip_host=True)
    for name, value in (headers | change).items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(content)
    assert connection.getresponse().status == status
    assert not list(Path().glob("*.answers.csv"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a page that is served from the working folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("served"))
        write_slide(Path("a.tif"))
        rows = [("a", "a.tif", 60 + 25 * i, 200, 64, 1.0, 64, 1.0) for i in range(NUM)]
        write_text(Path("squares/suggestions.csv"), pd.DataFrame(rows, columns=COLUMNS).to_csv(index=False))
        with served() as (address, _):
            yield address


def test_no_other_file_of_its_folder_is_served(site: str, browser: Any) -> None:
    page = browser.new_page()
    assert "Label patches" in page.goto(f"{site}squares/suggestions.csv").text()


def message(**content: Any) -> bytes:
    return json.dumps({"known": 0, **content}).encode()


def naive_replay(rows: pd.DataFrame) -> dict[str, str]:
    """y -> answer, by a stack of steps."""
    steps: list[dict[str, str]] = []
    for _, of_step in rows.groupby("step"):
        if of_step["answer"].iloc[0] == "undone":
            steps.pop()
        else:
            steps.append(dict(zip(of_step["y"], of_step["label"] + of_step["answer"], strict=True)))
    return {y: answer for step in steps for y, answer in step.items()}


def test_what_is_read_is_what_is_left_of_all_steps(tmp_path: Path) -> None:
    path, into = tmp_path / "x.answers.csv", tmp_path / "patches.csv"
    random = np.random.default_rng(0)
    answers = Answers(path, SQUARES)
    known = 0
    for _ in range(200):
        if random.random() < 0.3:
            asked = message(undo=True, known=known)
        else:
            numbers = random.permutation(NUM)[: random.integers(1, 4)].tolist()
            label = str(random.choice(["tumor", "normal", ""]))
            asked = message(
                numbers=numbers, kind="label" if label else "artefact", label=label, by="Ada", known=known
            )
        known += len(json.loads(answers.reply(asked))["steps"])
        if random.random() < 0.2:
            answers = Answers(path, SQUARES)  # Another server goes on.
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    wanted = naive_replay(table.assign(step=table["step"].astype(int)))
    assert Answers(path, SQUARES).num_answered == len(wanted)
    labeled = {y: answer.removesuffix("label") for y, answer in wanted.items() if answer.endswith("label")}
    assert labeled
    assert merge_labels([path], into) == (len(labeled), 0, len(wanted) - len(labeled), 0)
    merged = pd.read_csv(into, dtype=str)
    assert dict(zip(merged["y"], merged["label"], strict=True)) == labeled


def test_a_line_that_a_crash_has_cut_is_removed_and_all_before_stay(tmp_path: Path) -> None:
    path = tmp_path / "x.answers.csv"
    Answers(path, SQUARES).reply(message(numbers=[3], kind="label", label="tumor"))
    whole = path.read_bytes()
    header = whole.index(b"\n") + 1
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert Answers(path, SQUARES).num_answered == 0
        assert path.stat().st_size == 0
    path.write_bytes(whole + whole[header : header + 9])
    answers = Answers(path, SQUARES)
    assert (answers.num_answered, path.read_bytes()) == (1, whole)
    answers.reply(message(numbers=[4], kind="cannot tell", known=1))
    assert path.read_bytes().startswith(whole)


@pytest.mark.parametrize("content", ["mine\n", "slide_id,y,x\n1,2,3\n", "x", "slide_id;y"])
def test_another_file_is_refused_and_stays(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.answers.csv"
    path.write_text(content)
    with pytest.raises(InputError, match="Fix: move it away"):
        Answers(path, SQUARES)
    assert path.read_text() == content


def test_answers_of_another_page_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.answers.csv"
    Answers(path, SQUARES).reply(message(numbers=[11], kind="artefact"))
    with pytest.raises(InputError, match="row 2: is no square of this page"):
        Answers(path, SQUARES[:11])
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OutputError, match="is a link"):
        Answers(tmp_path / "link", SQUARES)


def test_what_cannot_be_written_is_not_saved_and_the_file_is_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.answers.csv"
    answers = Answers(path, SQUARES)
    answers.reply(message(numbers=[0], kind="artefact"))
    whole, write = path.read_bytes(), os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda handle, content: write(handle, content[:7]))
        with pytest.raises(OutputError, match="file size limit"):
            answers.reply(message(numbers=[1], kind="artefact", known=1))
    assert path.read_bytes() == whole
    path.write_bytes(whole + b"\n")
    with pytest.raises(InputError, match="another program has changed it"):
        answers.reply(message(numbers=[1], kind="artefact", known=1))
    path.unlink()
    with pytest.raises(InputError, match="another program has changed it"):
        answers.reply(message(numbers=[1], kind="artefact", known=1))


def test_rows_may_be_removed_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "x.answers.csv"
    answers = Answers(path, SQUARES)
    for number in range(5):
        answers.reply(message(numbers=[number], kind="label", label="tumor", known=number))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:2] + lines[3:]))
    answers = Answers(path, SQUARES)
    answers.reply(message(numbers=[7], kind="label", label="normal", known=4))
    steps = json.loads(Answers(path, SQUARES).reply(message(known=0)))["steps"]
    assert [(step["numbers"], step["label"]) for step in steps] == [
        *(([number], "tumor") for number in (0, 2, 3, 4)),
        ([7], "normal"),
    ]
    answers.reply(message(undo=True, known=5))
    assert Answers(path, SQUARES).num_answered == 4


def test_a_last_line_without_an_end_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "x.answers.csv"
    answers = Answers(path, SQUARES)
    answers.reply(message(numbers=[1], kind="artefact"))
    Answers(path, SQUARES).reply(message(numbers=[2], kind="artefact", known=1))
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert Answers(path, SQUARES).num_answered == 1
    assert "the last line has no end and was removed: b's,21.0," in caplog.text


def test_keys_after_a_refused_answer_are_dropped(squares: Path, browser: Any) -> None:
    """They were meant for the next square."""
    with served() as (address, _):
        (first, _), (second, _) = opened(browser, address), opened(browser, address)
        first.keyboard.press("1")
        wait_for(first, 1)
        second.route("**/*", lambda route: (time.sleep(0.5), route.continue_()))
        second.keyboard.press("2")
        second.keyboard.press("2")
        second.keyboard.press("2")
        wait_for(second, 1)
        expect(second.locator("#warning")).to_contain_text("Not saved")
        second.unroute("**/*")
        second.keyboard.press("ArrowRight")
        second.keyboard.press("2")
        wait_for(second, 2)
    assert labels_of(answers_file()) == list(CLASSES)


def test_after_the_last_answer_a_key_changes_nothing_until_a_patch_is_selected(
    squares: Path, browser: Any
) -> None:
    with served() as (address, _):
        page, _ = opened(browser, address)
        for _ in range(NUM):
            page.keyboard.press("1")
        wait_for(page, NUM)
        page.keyboard.press("2")
        expect(page.locator("#warning")).to_have_text(
            "All are answered. Select a patch to change its answer."
        )
        page.locator(".patch").first.click()
        page.keyboard.press("2")
        expect(page.locator("#classes")).to_contain_text("(1)")
    assert labels_of(answers_file()) == [*[CLASSES[0]] * (NUM - 1), CLASSES[1]]  # in the order of the answers
