"""One line of a report: what was looked at, how it is, and what to do about it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from histo_monai.utils.escapes import printable

Status = Literal["PASS", "WARN", "FAIL"]


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        status: PASS: as it should be; WARN: works, but not as it could; FAIL: does not work, or is not what it was.
        what: What was looked at.
        message: How it is, one line.
        remedy: What to do; empty where there is nothing to do.
    """

    status: Status
    what: str
    message: str
    remedy: str = ""

    def line(self, width: int = 0) -> str:
        """For a terminal; `width` characters for `what`."""
        remedy = f"; {self.remedy}" if self.remedy else ""
        line = " ".join(f"{self.status}  {self.what:<{width}}  {self.message}{remedy}".splitlines())
        return printable(line)


def print_findings(findings: Sequence[Finding], *, as_json: bool) -> int:
    """Print them, one a line, and their number by status; the exit status: 1 where one is FAIL."""
    counts = Counter(finding.status for finding in findings)
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        width = min(44, max((len(finding.what) for finding in findings), default=0))
        for finding in findings:
            print(finding.line(width))
        print(", ".join(f"{counts[status]} {status}" for status in ("PASS", "WARN", "FAIL")))
    return 1 if counts["FAIL"] else 0
