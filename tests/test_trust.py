"""What docs/trust.md promises of the code as a whole: no network, nothing that runs what it reads."""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Iterator
from pathlib import Path

NETWORK = {
    "socket",
    "urllib",
    "http",
    "ssl",
    "ftplib",
    "smtplib",
    "requests",
    "urllib3",
    "httpx",
    "aiohttp",
    "fsspec",
    "distributed",
}
RUNS_WHAT_IT_READS = {"pickle", "cPickle", "shelve", "marshal", "dill", "cloudpickle", "joblib", "runpy"}
_MAY_CONNECT = {
    "pipeline/doctor/remote.py": {"socket", "urllib"},  # `doctor`: whether the server of the remote answers
    "utils/process/cluster.py": {"distributed"},  # where the user names a scheduler
    "reports/site/server.py": {"http"},  # listens, on the loopback interface
    "pipeline/warm.py": {"socket"},  # a file on this machine, in a folder of the user
    "reports/site/vendor.py": {"urllib"},  # runs when the package is built; a page carries what it fetched
}


def _modules(root: Path) -> Iterator[tuple[str, ast.Module]]:
    package = root / "histo_monai"
    for path in sorted(package.rglob("*.py")):
        yield path.relative_to(package).as_posix(), ast.parse(path.read_text())


def _imported(tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def _calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_no_module_opens_a_connection_but_those_that_the_document_names(root: Path) -> None:
    using = {name: _imported(tree) & NETWORK for name, tree in _modules(root)}
    assert {name: modules for name, modules in using.items() if modules} == _MAY_CONNECT


def test_no_weights_are_downloaded(root: Path) -> None:
    for name, tree in _modules(root):
        for function, call in _calls(tree):
            if "torchvision.models" in function:
                (weights,) = [word.value for word in call.keywords if word.arg == "weights"]
                assert ast.unparse(weights) == "None", name
            assert "hub.load" not in function, name


def test_nothing_that_is_read_is_run(root: Path) -> None:
    for name, tree in _modules(root):
        assert not _imported(tree) & RUNS_WHAT_IT_READS, name
        for function, call in _calls(tree):
            words = {word.arg: ast.unparse(word.value) for word in call.keywords}
            assert function not in ("eval", "exec", "compile", "os.system", "os.popen"), name
            assert function not in ("yaml.load", "yaml.unsafe_load", "np.load", "pd.read_pickle"), name
            if function == "torch.load":
                assert words["weights_only"] == "True", name
            assert words.get("shell", "False") == "False", name


def test_dvc_reports_no_usage(root: Path) -> None:
    config = configparser.ConfigParser()
    config.read_string((root / ".dvc/config").read_text())
    assert config.get("core", "analytics") == "false"


def test_links_of_the_pages_lead_somewhere(root: Path) -> None:
    pages = [root / "README.md", root / "CONTRIBUTING.md", root / "CHANGELOG.md", *root.glob("docs/*.md")]
    links = [
        (page, link) for page in pages for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    ]
    assert len(links) > 40
    assert not [(page.name, link) for page, link in links if not (page.parent / link).exists()]
