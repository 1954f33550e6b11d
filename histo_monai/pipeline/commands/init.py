"""Command `init`: new folder -> DVC project that runs with the installed package."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from histo_monai import __version__
from histo_monai.data.readers.registry import DATASETS
from histo_monai.models.encoders.packaged import NAME, package_file
from histo_monai.models.encoders.published import PUBLISHED
from histo_monai.pipeline.imports import PACKAGE
from histo_monai.pipeline.project.files import FILES, SOURCE_ONLY
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import check_folder, file_sha256

TEMPLATE = PACKAGE / "pipeline" / "project"
_CODE_IN_CLONE = "    deps: [histo_monai, own_methods]\n"
_CODE_INSTALLED = "    always_changed: true  # compares the installed package in half a second\n"
_DRAFT = ".histo_monai.draft"
_NOBODY = {"user.name": "histo-monai init", "user.email": "histo-monai@localhost"}
_WEIGHTS = Path("data/weights")
_OWN = {
    "alpha": "1.0",
    "index.artefacts": "[pen, dark]",
    "pretraining_methods": "[pretrained]",
    "semisupervised_methods": "[supervised]",
    "slide_level.pretraining_methods": "[pretrained]",
    "slide_level.semisupervised_methods": "[supervised]",
    "encoder.side": "128",
    "features.depth": "[0, null]",
    "features.field": "2",
    "finetune.mode": "head",
    "corpora.own.num_train": "16000",
    "corpora.own.num_validation": "640",
    "pretrain.rsp_moco.epochs": "1",
    "pretrain.rsp_moco.batch_size": "32",
    "pretrain.rsp_moco.warmup": "0.1",
    "pretrain.rsp_moco.queue_size": "4096",
}
"""Params of own data: the first result is a head on frozen features, with all labels; `PRETRAIN` follows."""
PRETRAIN = "dvc exp run -S 'pretraining_methods=[pretrained,rsp_moco]' -S 'slide_level.pretraining_methods=[rsp_moco]'"
"""Command that continues the encoder's pretraining on the project's slides."""
TRAIN = (
    "dvc exp run -S finetune.mode=all -S 'semisupervised_methods=[adabn]' "
    "-S 'slide_level.semisupervised_methods=[adabn]'"
)
"""Command that trains networks after the first result."""


def run(folder: str, *, dataset: str | None = None) -> None:
    """Write dvc.yaml, params.yaml, DVC and git settings, README and docs; commit them unless a git repository exists.

    Args:
        folder: new or empty.
        dataset: dataset to read from data/raw; None for simulated slides.

    Raises:
        InputError: the folder is not empty, git is missing, or git fails.
    """
    target = Path(folder)
    check_folder(target)
    if target.is_dir() and {path.name for path in target.iterdir()} - {_DRAFT}:
        raise InputError(f"{target}: not empty. Fix: name a new folder")
    if shutil.which("git") is None:
        raise InputError("git: not installed, and DVC needs it. Fix: install git, then run again")
    is_new = not target.exists()
    draft = target / _DRAFT
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.mkdir(parents=True)
        _fill(draft, dataset)
        in_repository = _is_in_repository(target)
        if not in_repository:
            _run(draft, "git init", "git", "init", "--quiet")
        if dataset == "own":
            _add_encoder(draft)
        if not in_repository:
            _commit(draft)
        for path in sorted(draft.iterdir()):
            path.rename(target / path.name)
        draft.rmdir()
    except BaseException:
        shutil.rmtree(target if is_new else draft, ignore_errors=True)
        raise
    print(_next_steps(target, dataset, in_repository))


def _fill(draft: Path, dataset: str | None) -> None:
    source = TEMPLATE if (TEMPLATE / "dvc.yaml").is_file() else PACKAGE.parent
    for name in FILES:
        into = draft / name
        into.parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, into, ignore=shutil.ignore_patterns(*SOURCE_ONLY))
        else:
            shutil.copyfile(source / name, into)
    _name_pages_of_the_source(draft / "docs")
    shutil.copyfile(TEMPLATE / "README.md", draft / "README.md")
    (draft / "requirements.txt").write_text(f"{requirement()}\n")
    _replace(draft / "dvc.yaml", re.escape(_CODE_IN_CLONE), _CODE_INSTALLED)
    if dataset is not None:
        _choose(draft / "params.yaml", dataset)
        (draft / "data/raw" / dataset).mkdir(parents=True)


def requirement() -> str:
    """Line for pip that installs this package again: from where it came, as pip has recorded it (PEP 610)."""
    try:
        recorded = distribution("histo_monai").read_text("direct_url.json")
    except PackageNotFoundError:
        return f"histo_monai @ {PACKAGE.parent.as_uri()}"
    if recorded is None:
        return f"histo_monai=={__version__}"
    origin = json.loads(recorded)
    repository = origin.get("vcs_info")
    address = (
        f"{repository['vcs']}+{origin['url']}@{repository['commit_id']}" if repository else origin["url"]
    )
    return f"histo_monai @ {address}"


def _name_pages_of_the_source(docs: Path) -> None:
    """Replace links to pages that no project copies by their names."""
    link = rf"\[([^\]]+)\]\(({'|'.join(map(re.escape, SOURCE_ONLY))})(?:#[^)]*)?\)"
    for path in docs.glob("*.md"):
        page = path.read_text(encoding="utf-8")
        path.write_text(re.sub(link, r"\1, `\2` of the source", page), encoding="utf-8")


def _choose(params: Path, dataset: str) -> None:
    """Set params to a dataset in data/raw; `own` has heads on frozen features."""
    values = {"source": "raw", "dataset": dataset}
    if DATASETS[dataset].CorpusSettings is not None:
        values["pretraining_dataset"] = dataset
    set_values(params, values | (_OWN if dataset == "own" else {}))


def _add_encoder(draft: Path) -> None:
    """Write the encoder's weights into the project, where DVC tracks them, and name them in params.yaml."""
    source = package_file()
    target = draft / _WEIGHTS / source.name
    target.parent.mkdir(parents=True)
    shutil.copyfile(source, target)
    values = {
        "name": NAME,
        "weights": (_WEIGHTS / source.name).as_posix(),
        "sha256": file_sha256(target),
        "license": PUBLISHED[NAME].license or "null",
    }
    set_values(draft / "params.yaml", {f"encoder.{key}": value for key, value in values.items()})
    _run(draft, "dvc add", sys.executable, "-m", "dvc", "add", values["weights"])


def set_values(params: Path, values: Mapping[str, str]) -> None:
    """Write values of params.yaml by dotted key; comments stay."""
    for dotted, value in values.items():
        *section, key = dotted.split(".")
        before = "^"
        for depth, name in enumerate(section):
            inside = rf"{'  ' * (depth + 1)}[^\n]*\n|\s*#[^\n]*\n|\n"
            before += rf"{'  ' * depth}{name}:[^\n]*\n(?:{inside})*?"
        before += "  " * len(section)
        pattern = rf"(?m)(?P<before>{before})(?P<key>{key}: +)(?P<value>[^#\n]*?)(?P<gap> *)(?=#|$)"
        content = params.read_text(encoding="utf-8")
        match = re.search(pattern, content)
        if match is None:
            raise RuntimeError(f"{params.name}: no {dotted}")
        gap = " " * max(len(match["value"] + match["gap"]) - len(value), 2 if match["gap"] else 0)
        line = match["before"] + match["key"] + (value + gap if match["gap"] else value)
        params.write_text(content[: match.start()] + line + content[match.end() :], encoding="utf-8")


def _replace(path: Path, pattern: str, text: str) -> None:
    content, found = re.subn(pattern, lambda _: text, path.read_text(encoding="utf-8"))
    if found != 1:
        raise RuntimeError(f"{path.name}: {pattern!r} found {found} times")
    path.write_text(content, encoding="utf-8")


def _is_in_repository(target: Path) -> bool:
    place = next(path for path in (target.absolute(), *target.absolute().parents) if path.is_dir())
    inside = subprocess.run(["git", "-C", place, "rev-parse"], capture_output=True, check=False)
    return inside.returncode == 0


def _commit(draft: Path) -> None:
    """Make the first commit, which `dvc exp run` starts from; author: git's user, else a placeholder."""
    author = [] if _run(draft, "git config", "git", "config", "user.email", check=False) else _NOBODY.items()
    as_author = [part for key, value in author for part in ("-c", f"{key}={value}")]
    _run(draft, "git add", "git", "add", "--all")
    message = f"Project of histo_monai {__version__}"
    _run(draft, "git commit", "git", *as_author, "commit", "--quiet", "--message", message)


def _run(draft: Path, name: str, *command: str, check: bool = True) -> str:
    result = subprocess.run(command, cwd=draft, capture_output=True, text=True, check=False)
    if check and result.returncode:
        problem = " ".join(result.stderr.split())
        raise InputError(f"{name}: {problem}. Fix: repair it, then run again")
    return result.stdout.strip()


def _next_steps(target: Path, dataset: str | None, in_repository: bool) -> str:
    steps = [f"{target} is a project of histo_monai {__version__}. README.md lists its files. Next:", ""]
    if target.absolute() != Path.cwd():
        steps.append(f"    cd {target}")
    if in_repository:
        steps.append("    git add --all . && git commit -m 'Project of histo_monai'")
    if dataset is not None:
        steps.append(f"    # put your data into data/raw/{dataset}/")
        steps.append("    dvc repro check     # check the input, then open data/check/index.html")
    steps.append("    dvc repro           # run all stages, then open data/report/index.html")
    if dataset == "own":
        steps += [
            "",
            "The first result is a head on frozen features. To pretrain the encoder on your slides after it,",
            "in some 35 minutes of one core:",
            "",
            f"    {PRETRAIN}",
            "",
            "To train networks:",
            "",
            f"    {TRAIN}",
        ]
    return "\n".join(steps)
