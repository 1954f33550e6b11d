"""The files of the package that a stage imports, found in the source: nothing is imported to find them.

They are what dvc.yaml watches (`make deps` writes them there) and what a killed training must share with the one that
goes on after it. An import inside a function counts, as it is there for speed only; one under `if TYPE_CHECKING` does
not, as it never runs. What is loaded by a name that only a run knows, as the methods of pretraining are, is not seen:
whoever loads it names it as a further root.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent
COMMAND_LINE = f"{PACKAGE.name}.__main__"


def stage_module(stage: str) -> str:
    """Name of the module that the command line runs for a stage."""
    return f"{PACKAGE.name}.stages.{stage}"


def stage_sha256(stage: str, *loaded: str) -> str:
    """Digest of the code that a stage runs, with the modules that it loads by name (see `modules_sha256`)."""
    return modules_sha256(COMMAND_LINE, stage_module(stage), *loaded)


def modules_sha256(*modules: str) -> str:
    """Digest of the files of modules and of all that they import from this package (see `imported_files`)."""
    digest = hashlib.sha256()
    for path in imported_files(modules):
        name = path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else path.name
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def imported_files(modules: Iterable[str]) -> list[Path]:
    """Files of these modules and of all that they import from this package, as far as it goes, sorted.

    Those of packages on the way are among them, since they run first, and files of data that lie beside a module and
    are named in it. Left out are modules that hold words alone, and the package's own, which holds a version.

    Args:
        modules: dotted names. One from outside the package is loaded already; it brings its own file, and what it
            imports from here.

    Raises:
        ModuleNotFoundError: a module has no file.
    """
    reached: dict[str, Path] = {}
    waiting = [part for module in modules for part in _with_packages(module)]
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached[module] = _file_of(module)
            waiting.extend(imports_of(reached[module], module))
    files = {path for module, path in reached.items() if module != PACKAGE.name and _holds_code(path)}
    return sorted(files.union(*map(_data_of, files)))


def imports_of(path: Path, module: str) -> frozenset[str]:
    """Modules of this package that a module imports itself, and the packages that they lie in.

    Args:
        path: its file.
        module: its dotted name.
    """
    found: set[str] = set()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in _statements(_parsed(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            base = "." * node.level + (node.module or "")
            base = importlib.util.resolve_name(base, package) if node.level else base
            names = [
                base,
                *(f"{base}.{alias.name}" for alias in node.names if _is_module(f"{base}.{alias.name}")),
            ]
        for name in names:
            found.update(_with_packages(name))
    return frozenset(name for name in found if _is_ours(name))


def _statements(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Import statements at any depth that can run."""
    for child in _that_run(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        else:
            yield from _statements(child)


def _that_run(node: ast.AST) -> Iterable[ast.AST]:
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        return node.orelse
    return ast.iter_child_nodes(node)


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes(), filename=str(path))


def _holds_code(path: Path) -> bool:
    return any(
        not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in _parsed(path).body
    )


def _data_of(path: Path) -> set[Path]:
    """Files beside a module, not of Python, whose names it holds."""
    names = {node.value for node in ast.walk(_parsed(path)) if isinstance(node, ast.Constant)}
    return {file for file in path.parent.iterdir() if file.name in names and file.suffix not in ("", ".py")}


def _is_ours(module: str) -> bool:
    return module.split(".", 1)[0] == PACKAGE.name


def _with_packages(module: str) -> list[str]:
    """`a.b.c` -> a, a.b, a.b.c; of a module from outside, itself alone."""
    if not _is_ours(module):
        return [module]
    parts = module.split(".")
    return [".".join(parts[: end + 1]) for end in range(len(parts))]


def _place(module: str) -> Path | None:
    """File of a module of ours; None where there is none."""
    path = PACKAGE.parent.joinpath(*module.split("."))
    for file in (path / "__init__.py", path.with_suffix(".py")):
        if file.is_file():
            return file
    return None


def _is_module(module: str) -> bool:
    return _is_ours(module) and _place(module) is not None


def _file_of(module: str) -> Path:
    if _is_ours(module):
        found = _place(module)
    else:
        file = getattr(sys.modules.get(module), "__file__", None)
        found = Path(file) if file else None
    if found is None:
        raise ModuleNotFoundError(
            f"{module}: no file of the package, and of no module that is loaded", name=module
        )
    return found
