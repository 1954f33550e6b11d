"""Shapes of JSON: what fits, and the words for what does not; all JSON that the project wrote is read by one."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from histo_monai.utils.storage.shapes import COUNT, FILES, POSITIVE, SHA256, Rule, Shape, misfit

DIGEST = "0123456789abcdef" * 4
FITS: list[tuple[Any, Shape]] = [
    *[("a", str), (True, bool), (1, int), (1, float), (1.5, float), (None, None), ([], object), ({}, {})],
    *[
        ([], [str]),
        (["a"], [str]),
        (None, (str, None)),
        ("a", (str, None)),
        ({"a": 1}, {"a": int, "b?": str}),
    ],
    *[({"a": 1, "more": []}, {"a": int}), ({"x": 1.0}, {str: float}), ({"a/b.csv": DIGEST}, FILES)],
    *[(0, COUNT), (0.1, POSITIVE), (DIGEST, SHA256), (10**300, float), ([{"a": [1]}], [{"a": [int]}])],
    *[({"done": "x"}, ({"done": str}, {"kind": str})), ({"kind": "x"}, ({"done": str}, {"kind": str}))],
]
DOES_NOT: list[tuple[Any, Shape, str]] = [
    (1, str, "it is 1, expected text"),
    (True, int, "it is True, expected a whole number"),
    (True, float, "expected a number"),
    (float("nan"), float, "it is nan"),
    (float("inf"), float, "it is inf"),
    (10**400, float, "many digits"),
    ("1", float, "expected a number"),
    (1.0, int, "expected a whole number"),
    (None, str, "it is None, expected text"),
    ([], {}, "it is a list, expected an object with keys"),
    ({}, [str], "it is an object with keys, expected a list"),
    (["a", 1], [str], "[1] is 1"),
    ({"a": {"b": [1, "x"]}}, {"a": {"b": [int]}}, "a.b[1] is 'x', expected a whole number"),
    ({}, {"a": int}, "no key 'a'"),
    ({"a": None}, {"a?": int}, "a is None"),
    (1, (str, None), "it is 1, expected text or null"),
    ({"a": 1}, ({"a": str}, None), "a is 1, expected text"),
    ({"kind": 1}, ({"done": str}, {"kind": str}), "kind is 1"),
    ({"../x": DIGEST}, FILES, "a key of it is '../x', expected a path inside the folder"),
    ({"/x": DIGEST}, FILES, "'/x'"),
    ({"a//b": DIGEST}, FILES, "'a//b'"),
    ({"": DIGEST}, FILES, "''"),
    ({"a\0": DIGEST}, FILES, r"'a\x00'"),
    ({"a": DIGEST.upper()}, FILES, "expected a SHA-256"),
    ({"a": DIGEST[1:]}, FILES, "expected a SHA-256"),
    ({"\x1b[2J": 1}, {str: str}, r"\x1b[2J is 1"),
    ("\x1b[2J", int, r"it is '\x1b[2J'"),
    (-1, COUNT, "at least 0"),
    (0, POSITIVE, "a positive number"),
    ([], Rule("red", lambda value: value == "red"), "expected red"),
]


@pytest.mark.parametrize(("value", "shape"), FITS, ids=map(str, range(len(FITS))))
def test_what_fits(value: Any, shape: Shape) -> None:
    assert misfit(value, shape) == ""


@pytest.mark.parametrize(("value", "shape", "words"), DOES_NOT, ids=map(str, range(len(DOES_NOT))))
def test_what_does_not_fit_is_one_short_line_with_its_place(value: Any, shape: Shape, words: str) -> None:
    fault = misfit(value, shape)
    assert words in fault
    assert fault.isprintable()
    assert len(fault) < 300


_OTHERS = {
    "pipeline/commands/init.py",  # what pip records of an installation
    "pipeline/doctor/reading.py",  # lines of a child of its own
    "pipeline/warm.py",  # what a process of its own user sends
    "pipeline/experiments.py",  # what `dvc exp show` prints
    "reports/site/vendor.py",  # of pip
    "slides/annotations/geojson.py",  # of any tool
    "slides/annotations/properties.py",  # a class of any tool
    "utils/storage/reading.py",
}


def test_no_json_of_ours_is_read_without_a_shape(root: Path) -> None:
    package = root / "histo_monai"
    parsing = set()
    for path in package.rglob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        if any(ast.unparse(call.func) in ("json.loads", "json.load") for call in calls):
            parsing.add(path.relative_to(package).as_posix())
    assert parsing == _OTHERS
