"""Result of one check: status, message and fix."""

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
    """Result of one check.

    Attributes:
        status: PASS: correct; WARN: works with limits; FAIL: does not work, or a result has changed.
        what: name of the checked item.
        message: one line.
        remedy: the fix; empty for PASS.
    """

    status: Status
    what: str
    message: str
    remedy: str = ""

    def line(self, width: int = 0) -> str:
        """Line for a terminal; `what` is padded to `width` characters."""
        remedy = f"; {self.remedy}" if self.remedy else ""
        line = " ".join(f"{self.status}  {self.what:<{width}}  {self.message}{remedy}".splitlines())
        return printable(line)


def print_findings(findings: Sequence[Finding], *, as_json: bool) -> int:
    """Print findings and their number by status; exit status 1 if any is FAIL."""
    counts = Counter(finding.status for finding in findings)
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        width = min(44, max((len(finding.what) for finding in findings), default=0))
        for finding in findings:
            print(finding.line(width))
        print(", ".join(f"{counts[status]} {status}" for status in ("PASS", "WARN", "FAIL")))
    return 1 if counts["FAIL"] else 0
