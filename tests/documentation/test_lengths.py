"""Pages that a reader finishes: few words in all, no long sentence. Code, tables and links' targets do not count."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.documentation.pages import user_pages

MAX_WORDS, MAX_WORDS_README, MAX_WORDS_SENTENCE, MEDIAN_WORDS_SENTENCE = 20_000, 600, 40, 18
PRIVATE = ("cohorts?", "draws?", "foresight", "house", "luck", "remarks?", "told")
"""The field: simulated dataset, random subset, preflight check, module, run-to-run variation, warning, stated."""
PRIVATE_IN_CODE = ("cohorts?", "foresight", "luck", "remarks?", "says", "told")


def _without_code(page: str) -> str:
    page = re.sub(r"(?ms)^```.*?^```", "", page)
    page = re.sub(r"(?m)^    .*$", "", page)
    return re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "x", page))


def _num_words(text: str) -> int:
    return len(re.findall(r"[A-Za-z][A-Za-z'’-]*", text))


def _sentences(page: str) -> Iterator[str]:
    """Sentences of paragraphs and of items of lists."""
    prose = re.sub(r"(?m)^([|#]|!\[).*$", "", _without_code(page))
    for block in re.split(r"\n\s*\n|\n(?=(?:[-*]|\d+\.) )", prose):
        yield from re.split(r"(?<=[.!?])[\"')*]*\s+", block.strip())


def test_words_and_sentences_are_counted_without_code_and_tables() -> None:
    page = (
        "# Two words\nOne [two three](four.md#five) `six`. Seven\neight!\n\n| nine | ten |\n|---|---|\n"
        "- eleven twelve\n- thirteen\n\n    code\n\n```python\nmore\n```\n"
    )
    assert _num_words(_without_code(page)) == 13
    assert [_num_words(one) for one in _sentences(page) if one] == [4, 2, 2, 1]


def test_pages_for_users_have_few_words_in_all(root: Path) -> None:
    words = {
        path.name: _num_words(_without_code(path.read_text(encoding="utf-8"))) for path in user_pages(root)
    }
    assert len(words) > 20
    assert sum(words.values()) <= MAX_WORDS, sorted(words.items(), key=lambda item: -item[1])
    assert _num_words(_without_code((root / "README.md").read_text(encoding="utf-8"))) <= MAX_WORDS_README


def test_no_sentence_is_long_and_half_are_short(root: Path) -> None:
    pages = [root / "README.md", *user_pages(root)]
    words = {
        (path.name, sentence): _num_words(sentence)
        for path in pages
        for sentence in _sentences(path.read_text(encoding="utf-8"))
        if sentence
    }
    assert not [sentence for sentence, number in words.items() if number > MAX_WORDS_SENTENCE]
    assert median(words.values()) <= MEDIAN_WORDS_SENTENCE


def test_pages_use_the_words_of_the_field(root: Path) -> None:
    for path in [root / "README.md", *user_pages(root)]:
        found = re.findall(rf"\b(?:{'|'.join(PRIVATE)})\b", _without_code(path.read_text(encoding="utf-8")))
        assert not found, path.name


def test_the_package_uses_the_words_of_the_field(root: Path) -> None:
    found = {
        str(path.relative_to(root)): words
        for path in sorted((root / "histo_monai").rglob("*.py"))
        if (words := re.findall(rf"(?i)(?<![a-z])(?:{'|'.join(PRIVATE_IN_CODE)})(?![a-z])", path.read_text()))
    }
    assert not found
