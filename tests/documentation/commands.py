"""Every command of README and docs, taken out of their blocks of code, and where each is run or looked at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "data/README.md",
    "histo_monai/pipeline/project/README.md",
    "docs/*.md",
)
OURS = ("histo-monai", "python -m histo_monai")

NO_COMMANDS = (
    r"__main__ ",  # the house of docs/architecture.md
    r"phantom -> ",
    r"finetune@<",
    r"pretrain@<",
    r"slide_id,path",
    r"path,label",
)
"""How blocks begin that hold no command."""

_REMOTE, _S3, _REPRO = (f"tests/pipeline/test_{name}.py" for name in ("remote", "remote_s3", "repro"))
_SWEEP = "tests/pipeline/test_sweep.py"
_STAGES = "|".join(path.stem for path in sorted((ROOT / "histo_monai/pipeline/stages").glob("[a-z]*.py")))
_PROGRAM = r"(histo-monai|python -m histo_monai)"

EXPERIMENT = r"dvc exp run .*"
"""Planned by DVC to the last stage, or queued, in `tests/pipeline/test_experiments_of_pages.py`."""
OF_THE_PAPER = "docs/paper.md"
"""The page whose commands take params/paper.yaml."""

RUN_ELSEWHERE = {
    r"make docs": "tests/documentation/test_site.py::test_the_site_is_built_without_a_warning",
    r"python3 -m venv .*|source (env|\.venv)/bin/activate|cd (myslides|demo|histo_monai)|pip install \./histo_monai": (
        "tests/pipeline/test_wheel.py::test_a_project_of_the_wheel_runs_to_the_report_without_the_source"
    ),
    r"mkdir .*|cat > .*|cp ~/qupath.*": (
        "tests/pipeline/test_own_example.py::test_the_example_runs_from_an_empty_folder_to_maps_of_both_classes"
    ),
    r"cp params/paper\.yaml params\.yaml": "tests/pipeline/test_paper.py::test_a_dry_run_goes_through_all_stages",
    r"tensorboard --logdir data/tensorboard": (
        f"{_SWEEP}::test_tensorboard_compares_queued_experiments_in_the_project_that_queued_them"
    ),
    rf"{_PROGRAM} suggest --first .*": (
        "tests/stages/test_suggest_first.py::test_squares_that_are_labeled_come_into_the_index_and_are_not_suggested_again"
    ),
    rf"{_PROGRAM} label .*--serve.*": (
        "tests/commands/test_label_serve.py::test_each_answer_is_in_the_file_and_is_read_as_it_was_given"
    ),
    rf"{_PROGRAM} next( .*)?": "tests/commands/test_next.py::test_from_no_label_to_the_page_of_the_second_round",
    rf"{_PROGRAM} label .*": "tests/commands/test_label.py::test_by_keyboard_alone_all_are_labeled_saved_and_read",
    rf"{_PROGRAM} curves.*": f"{_SWEEP}::test_curves_collects_what_ended_well",
    r"dvc queue (start|status)": f"{_SWEEP}::test_one_that_fails_is_named_with_its_reason_and_leaves_the_others",
    r"python -m monai\.bundle run .*": (
        "tests/wsi/export/test_export.py::test_a_bundle_maps_a_slide_with_the_same_scores"
    ),
    r"histo-monai import weights\.pt .*": (
        "tests/wsi/export/test_export.py::test_weights_that_were_trained_since_come_back_without_the_metrics_of_others"
    ),
    r"export AWS_.*|python -c \"import s3fs.*|dvc remote .* (s3://|endpointurl|region).*": (
        f"{_S3}::test_a_fresh_clone_pulls_the_bytes_that_an_evaluation_reads"
    ),
    r"python -m histo_monai evaluate .*|dvc (push|pull)( [^-].*)?|dvc remote .*|git commit .*": (
        f"{_REMOTE}::test_a_fresh_clone_that_pulls_evaluates_to_the_same_bytes"
    ),
    r"git (clone|tag|push)\b.*|gto register .*|dvc (get|artifacts get) <repository> .*": (
        f"{_REMOTE}::test_one_model_is_had_by_version"
    ),
    r"dvc get \. .*|ssh server.*": (
        f"{_REMOTE}::test_a_changed_byte_in_the_remote_is_refused_by_its_name_until_it_is_mended"
    ),
    r"rm data/models/.*|chmod .*|find \.dvc/cache.*": (
        f"{_REMOTE}::test_what_dvc_does_not_verify_is_refused_when_it_is_loaded_and_can_be_mended"
    ),
    r"git checkout dvc\.lock|rm dvc\.lock": (
        f"{_REPRO}::test_a_lock_file_of_no_bytes_is_refused_and_is_written_anew_from_the_run_cache"
    ),
    r"dask (scheduler|worker .*)|HISTO_MONAI_CLUSTER=.* dvc repro": (
        "tests/utils/process/test_cluster.py::test_an_index_and_maps_of_real_slides_have_the_same_bytes"
    ),
    r"(docker|apptainer) .*": "tests/pipeline/test_containers.py::test_both_images_have_one_base_and_one_script",
    rf"{_PROGRAM} dvc (repro|exp run).*": "tests/commands/test_dvc.py::test_dvc_runs_stages_and_passes_on_its_status",
    rf"{_PROGRAM} report --serve": "tests/pipeline/test_report.py::test_the_page_is_served_to_this_machine_alone",
    rf"dvc repro( check| features| pretrain)?|{_PROGRAM} ({_STAGES})( --method .*)?": (
        f"{_REPRO}::test_repro_makes_models_and_metrics_and_then_has_nothing_to_do"
    ),
}
"""Commands by pattern, whole, and the test that runs them, or the same with other values."""

RUN_HERE = (
    rf"{_PROGRAM} (doctor|encoders.*|verify data/|map .*|features .*|suggest (?!--first).*|export .*|convert .*)",
    rf"{_PROGRAM} (init .*|import tumor_student .*)",
    r"dvc (metrics show .*|exp show)",
    r"dvc (push|fetch) --run-cache|dvc repro --pull",
)
"""Commands that `tests/pipeline/test_documents.py` runs in a project that has run."""

CHECKED = (
    r"make (repro|test lint)",
    r"\.venv/bin/pip install .*",
    r"python (benchmarks/.*|-m benchmarks(\.real .*)?)",
    r"benchmarks/gpu\.sh .*",
)
"""Commands that take too long, or write to this machine: they are parsed by what would run them."""


class Command(NamedTuple):
    """A command as a page has it, and the line."""

    text: str
    page: str
    line: int

    def __str__(self) -> str:
        return f"{self.page}, line {self.line}: {self.text}"


def pages() -> list[Path]:
    """Whose commands are looked at."""
    return [path for name in PAGES for path in sorted(ROOT.glob(name))]


def blocks(page: str) -> Iterator[list[tuple[int, str]]]:
    """Lines of code with their numbers, a list for each block: indented, or fenced with no language or a shell's."""
    block: list[tuple[int, str]] = []
    fence: str | None = None
    before = ""
    for number, line in enumerate(page.splitlines(), start=1):
        if line.startswith("```"):
            fence = line[3:].strip() if fence is None else None
        elif fence in ("", "sh", "bash", "console"):
            block.append((number, line))
            continue
        elif fence is None and line.startswith("    ") and (block or not before or before.startswith("#")):
            block.append((number, line[4:]))
            before = line
            continue
        if block:
            yield block
        block, before = [], line.strip()
    if block:
        yield block


def commands(path: Path) -> Iterator[Command]:
    """Each command of a page's blocks, one for each part of `a && b`; shell variables are put in their places."""
    variables: dict[str, str] = {}
    name = str(path.relative_to(ROOT))
    for block in blocks(path.read_text(encoding="utf-8")):
        if any(re.match(start, block[0][1]) for start in NO_COMMANDS):
            continue
        document = before = ""
        for number, line in block:
            line = before + line.strip() if before else line
            before = line.removesuffix("\\") if line.endswith("\\") else ""
            if before:
                continue
            if document:
                document = "" if line == document else document
                continue
            document = line.split("<<")[1].strip() if "<<" in line else ""
            text = re.split(r"\s+#\s", line)[0].strip()
            if assigned := re.fullmatch(r'([A-Z]+)="?([^"]*)"?', text):
                variables[assigned[1]] = assigned[2]
                continue
            for variable, value in variables.items():
                text = text.replace(f"${variable}", value)
            yield from (Command(part, name, number) for part in text.split(" && ") if part)


def inline(path: Path) -> Iterator[Command]:
    """Calls of our own program in the text of a page, without those that leave a word to fill in."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        for text in re.findall(r"`([^`]+)`", line) if not line.startswith("    ") else ():
            ours = text.startswith(tuple(f"{name} " for name in OURS))
            if ours and not re.search(r"<|\b[A-Z]{4,}\b|\.\.\.", text):
                yield Command(text, str(path.relative_to(ROOT)), number)
