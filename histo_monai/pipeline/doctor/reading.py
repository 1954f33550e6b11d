"""Checks of `doctor`: libraries that read slides, and the user's own slides.

A separate process reads slides, so that a crash on a damaged slide is one finding.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from histo_monai.data.tables.csv_rows import read_rows
from histo_monai.pipeline import paths
from histo_monai.pipeline.doctor.finding import Finding, Status
from histo_monai.pipeline.params import Params
from histo_monai.utils.files.csv_values import read_texts

TIMEOUT_S = 20.0
_LIBRARIES = {
    "cucim.clara": ("cuCIM", "`pip install cucim-cu13` (Linux); without it OpenSlide reads slides, slower"),
    "openslide": (
        "OpenSlide",
        "`pip install openslide-python openslide-bin`; without it only cuCIM's formats can be read",
    ),
}
_PROGRAM = "from histo_monai.pipeline.doctor.reading import answer; answer()"


def libraries(_params: Params | None) -> Iterator[Finding]:
    """Check that cuCIM and OpenSlide can be imported."""
    answers = ask([{"library": module} for module in _LIBRARIES])
    status: Status = "FAIL" if all("problem" in reply for reply in answers) else "WARN"
    for (name, remedy), reply in zip(_LIBRARIES.values(), answers, strict=True):
        if "problem" in reply:
            yield Finding(status, name, f"cannot be used: {reply['problem']}", remedy)
        else:
            yield Finding("PASS", name, reply["version"])


def own_slides(_params: Params | None) -> Iterator[Finding]:
    """Check of one slide per file suffix in the index or the manifest."""
    jobs: dict[str, dict[str, Any]] = {}
    manifest = paths.dataset_folder("raw", "own") / "slides.csv"
    for table in (paths.SLIDES_CSV, paths.WHOLE_SLIDES_CSV, manifest):
        if not table.is_file():
            continue
        around = table.parent if table == manifest else Path()
        rows = read_rows(table) if table == manifest else read_texts(table, ["path", "mpp"])
        for row in rows.to_dict("records"):
            path = around / str(row.get("path", ""))
            mpp = pd.to_numeric(row.get("mpp", ""), errors="coerce")
            job = {"path": str(path), "mpp": None if pd.isna(mpp) else float(mpp)}
            jobs.setdefault(path.suffix.lower(), job)
    for suffix, job, reply in zip(jobs, jobs.values(), ask(list(jobs.values())), strict=True):
        if "problem" in reply:
            yield Finding("FAIL", f"slide {suffix}", f"{job['path']}: {reply['problem']}")
        else:
            yield Finding("PASS", f"slide {suffix}", f"{job['path']}: read by {reply['backend']}")


def ask(jobs: Sequence[dict[str, Any]], timeout_s: float = TIMEOUT_S) -> list[dict[str, Any]]:
    """Answers of a separate process to the jobs; a crash or timeout is a problem of its job."""
    answers: list[dict[str, Any]] = []
    while len(answers) < len(jobs):
        left = jobs[len(answers) :]
        new, end = _run(left, timeout_s)
        answers += new
        if len(new) < len(left):
            answers.append({"problem": end})
    return answers


def _run(jobs: Sequence[dict[str, Any]], timeout_s: float) -> tuple[list[dict[str, Any]], str]:
    package = Path(__file__).parents[3]
    file_paths = [str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(file_paths)}
    command = [sys.executable, "-c", _PROGRAM]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(jobs),
            capture_output=True,
            text=True,
            env=environment,
            timeout=timeout_s,
            check=False,
        )
        output, error = done.stdout, done.stderr.strip().splitlines()
        end = f"the reading process crashed with signal {-done.returncode}"
        if done.returncode >= 0:
            end = error[-1] if error else f"the reading process ended with {done.returncode}"
    except subprocess.TimeoutExpired as error_:
        output = (
            (error_.stdout or b"").decode() if isinstance(error_.stdout, bytes) else str(error_.stdout or "")
        )
        end = f"takes more than {timeout_s:g} s"
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")], end


def answer() -> None:
    """Read jobs as JSON from stdin; print one JSON line per job. Runs in a separate process."""
    for job in json.load(sys.stdin):
        try:
            reply = _library(job["library"]) if "library" in job else _slide(job)
        except (ImportError, OSError, RuntimeError, ValueError) as error:
            reply = {"problem": " ".join(str(error).split()) or type(error).__name__}
        print(json.dumps(reply), flush=True)


def _library(module: str) -> dict[str, Any]:
    import importlib

    from histo_monai.utils.process.quiet import quiet_library

    with quiet_library():
        importlib.import_module(module)
    top = importlib.import_module(module.partition(".")[0])
    return {"version": str(getattr(top, "__version__", "there"))}


def _slide(job: dict[str, Any]) -> dict[str, Any]:
    from histo_monai.slides import concentric_boxes, open_slide
    from histo_monai.slides.tiles.cells import slide_grid, tissue_cells
    from histo_monai.slides.tiles.usable import TissueRules

    with open_slide(job["path"], job.get("mpp")) as slide:
        if "stride_um" in job:
            grid = slide_grid(slide, job["stride_um"])
            rules = TissueRules(job["tissue_mpp"], tuple(job["artefacts"]))
            cells, _ = tissue_cells(slide, grid, rules, job["min_tissue_fraction"])
            return {"num_patches": len(cells)}
        height, width = slide.size_yx
        side = min(256, height, width)
        (box,) = concentric_boxes(center_yx=(height // 2, width // 2), side_px=side, mpps=(slide.mpp,))
        slide.read(box)
        return {"backend": slide.backend}
