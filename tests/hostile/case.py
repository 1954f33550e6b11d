"""A case of the catalogue: what is spoiled, what is called, and what must then be so.

Every refusal obeys one oracle: exit code 1, exactly one line of error on stderr, of fewer than 1,000 characters and
without control characters, that names what the case mentions; no traceback, nothing printed by a library; the project
is what it was, byte for byte and folder for folder. What is odd but right ends with 0, and its inputs are unchanged.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

REFUSED, WRONG_CALL, ACCEPTED, EITHER = 1, 2, 0, None
OUTPUTS = (
    *("index", "models", "evaluation", "heatmaps", "diagnosis", "comparison"),
    *("curves", "suggestions", "checkpoints", "tensorboard"),
)
MAX_CHARACTERS = 1000
TIMEOUT_S = 20.0
_LOG_LINE = re.compile(r"(INFO|WARNING|ERROR) histo_monai[.\w]*: |epoch \d+/\d+")
_PROGRESS = re.compile(r"\d+%\||\[\d\d:\d\d|\?(it|\w+)/s|^\S[^:]*: 0(it|\w+)")
_PAGE = re.compile(r" \[docs/\w+\.md(#[\w-]+)?\]$")
_LEFTOVER = re.compile(r"\.(draft|before|lock)\b")
_LINKED_BYTES = 2**20

Snapshot = Mapping[str, str]


def _nothing() -> None:
    """Spoils nothing, checks nothing."""


@dataclass(frozen=True)
class Case:
    """One call on a spoiled project.

    Attributes:
        kind: Of the catalogue.
        name: What is odd, unique within the kind.
        argv: Of the command line.
        prepare: Spoils the project, which is the working folder; runs in the child, before the call.
        mentions: Texts that the line of error holds; where the call is accepted, that the log holds.
        code: `REFUSED`, `WRONG_CALL`, `ACCEPTED`, or `EITHER`: refused in one line, or accepted, nothing between.
        state: Of the project, see `project.STATES`.
        check: Of what an accepted call left; raises AssertionError.
        leaves: Patterns of paths that a call may change or leave: what was finished before it, and logs.
        environment: Variables to set.
        max_file_bytes: No file may be longer, as where a quota is used up.
    """

    kind: str
    name: str
    argv: tuple[str, ...]
    prepare: Callable[[], object] = _nothing
    mentions: tuple[str, ...] = ()
    code: int | None = REFUSED
    state: str = "own"
    check: Callable[[], object] = _nothing
    leaves: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    max_file_bytes: int | None = None

    @property
    def title(self) -> str:
        """Kind and name, by which a case is asked for."""
        return f"{self.kind}: {self.name}"


@dataclass(frozen=True)
class Outcome:
    """What a call did.

    Attributes:
        ended: Exit code; "hangs", or "dies of signal n".
        out: What it printed.
        err: What it printed as errors and log.
        before: The project when the call began.
        after: The project when it had ended.
    """

    ended: int | str
    out: str
    err: str
    before: Snapshot
    after: Snapshot


def snapshot(folder: Path) -> Snapshot:
    """Path below a folder -> what is there: kind, and digest of the content; links are not followed.

    Large files are linked to those of the project that this one is a copy of: their inode, size and time are compared.
    """
    result = {}
    for where, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(where, name)
            result[str(path.relative_to(folder))] = _describe(path)
    return result


def _describe(path: Path) -> str:
    about = path.lstat()
    if stat.S_ISLNK(about.st_mode):
        return f"link to {os.readlink(path)}"
    if stat.S_ISDIR(about.st_mode):
        return "folder"
    if not stat.S_ISREG(about.st_mode):
        return f"special {stat.S_IFMT(about.st_mode):o}"
    if about.st_nlink > 1 or about.st_size > 64 * _LINKED_BYTES:
        return f"file {about.st_ino} {about.st_size} {about.st_mtime_ns}"
    if not os.access(path, os.R_OK):
        return f"file that cannot be read, {about.st_size} {about.st_mtime_ns}"
    return f"file {hashlib.sha256(path.read_bytes()).hexdigest()}"


def faults(case: Case, outcome: Outcome) -> list[str]:
    """What is not as it must be, a line each; none where the case is passed."""
    lines = [line for line in re.split(r"[\r\n]", outcome.err) if line.strip()]
    wanted = (REFUSED, ACCEPTED) if case.code is EITHER else (case.code,)
    result = []
    if outcome.ended not in wanted:
        result.append(f"{_ended(outcome.ended)}, not {' or '.join(map(str, wanted))}: {_short(lines[-1:])}")
    if "Traceback (most recent call last)" in outcome.err:
        result.append(f"a traceback: {_short(lines[-1:])}")
    printed = [line for line in re.split(r"[\r\n]", outcome.out) if line and not _LOG_LINE.match(line)]
    if printed:
        result.append(f"prints {_short(printed)}")
    errors = [line for line in lines if "error: " in line]
    if outcome.ended == ACCEPTED:
        result += _faults_of_accepted(case, outcome, errors)
    else:
        result += _faults_of_refused(case, outcome, errors)
    if outcome.ended != WRONG_CALL:
        strays = [line for line in lines if line not in errors and not _LOG_LINE.match(line)]
        strays = [line for line in strays if not _PROGRESS.search(line)]
        if strays and "Traceback" not in outcome.err:
            result.append(f"a library prints {_short(strays)}")
    dirty = [line for line in lines if _control_characters(line) and not _PROGRESS.search(line)]
    if dirty:
        result.append(f"control characters {_short(dirty)}")
    return result


def _faults_of_refused(case: Case, outcome: Outcome, errors: list[str]) -> list[str]:
    result = []
    if len(errors) != 1:
        result.append(f"{len(errors)} lines of error")
    for line in errors[:1]:
        if len(line) >= MAX_CHARACTERS:
            result.append(f"a line of {len(line)} characters")
        if outcome.ended == REFUSED and not _PAGE.search(line):
            result.append(f"names no section of the documents: {_short([line])}")
        result += [f"does not say {text!r}: {_short([line])}" for text in case.mentions if text not in line]
    changed = _changed(case, outcome)
    if changed:
        result.append(f"not what it was: {_short(changed)}")
    return result


def _changed(case: Case, outcome: Outcome) -> list[str]:
    paths = sorted(outcome.before.keys() | outcome.after.keys())
    changed = [path for path in paths if outcome.before.get(path) != outcome.after.get(path)]
    return [path for path in changed if not any(fnmatch.fnmatch(path, one) for one in case.leaves)]


def _faults_of_accepted(case: Case, outcome: Outcome, errors: list[str]) -> list[str]:
    result = [f"an error, and 0: {_short(errors)}"] if errors else []
    if case.code == ACCEPTED:
        result += [f"does not say {text!r} in the log" for text in case.mentions if text not in outcome.err]
    changed = [path for path in _changed(case, outcome) if path in outcome.before and _is_input(path)]
    if changed:
        result.append(f"inputs changed: {_short(changed)}")
    left = [path for path in outcome.after if _LEFTOVER.search(path) and path not in outcome.before]
    if left:
        result.append(f"left behind: {_short(left)}")
    return result


def _is_input(path: str) -> bool:
    """What a killed run left is nobody's input either."""
    parts = Path(path).parts
    return not _LEFTOVER.search(path) and not (len(parts) > 2 and parts[1] == "data" and parts[2] in OUTPUTS)


def _control_characters(text: str) -> bool:
    return any(unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp", "Cs") for one in text)


def _ended(ended: int | str) -> str:
    return f"exit code {ended}" if isinstance(ended, int) else ended


def _short(texts: list[str]) -> str:
    return repr(" | ".join(texts))[:300]
