"""Package files that a stage imports, from the source text, without importing them.

DVC watches these files (stage `code`), and a resumed training must have equal ones. Imports inside functions count;
imports under `if TYPE_CHECKING` do not. A module loaded by name is not found: its caller names it as a further root.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from histo_monai.utils.settings.own_methods import OWN_METHODS

PACKAGE = Path(__file__).resolve().parents[1]
COMMAND_LINE = f"{PACKAGE.name}.pipeline.cli"


def stage_module(stage: str) -> str:
    """Module name of a stage."""
    return f"{PACKAGE.name}.pipeline.stages.{stage}"


def stage_sha256(stage: str, *loaded: str) -> str:
    """Digest of a stage's code, with further modules that it loads by name."""
    return modules_sha256(COMMAND_LINE, stage_module(stage), *loaded)


def modules_sha256(*modules: str) -> str:
    """Digest of the modules and all their imports from this package."""
    digest = hashlib.sha256()
    for path in imported_files(modules):
        name = path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else path.name
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def imported_files(modules: Iterable[str], known: dict[str, Source] | None = None) -> list[Path]:
    """Sorted files of modules and of all their direct and indirect imports from this package.

    Included: parent packages' `__init__.py`, and data files beside a module that its text names. Excluded: modules with
    docstrings only, and the package's own `__init__.py`, which holds the version.

    Args:
        modules: dotted names. Files in the project's `own_methods/` count like the package's. Other outside modules
            must be loaded; each contributes its own file and its imports from this package.
        known: modules read so far, for several calls while no file changes; filled.

    Raises:
        ModuleNotFoundError: a module has no file.
    """
    known = {} if known is None else known
    reached: dict[str, Source] = {}
    waiting = [part for module in modules for part in _with_packages(module)]
    while waiting:
        module = waiting.pop()
        if module not in reached:
            if module not in known:
                known[module] = Source.read(module)
            reached[module] = known[module]
            waiting.extend(known[module].imports)
    sources = [
        source for module, source in reached.items() if module != PACKAGE.name and source.facts.holds_code
    ]
    return sorted({source.path for source in sources}.union(*(source.data for source in sources)))


@dataclass(frozen=True)
class _Facts:
    """Facts from a module's text.

    Attributes:
        imported: per import statement: number of dots, name, imported names.
        holds_code: whether it holds more than docstrings.
    """

    imported: tuple[tuple[int, str, tuple[str, ...]], ...]
    holds_code: bool


@dataclass(frozen=True)
class Source:
    """Source file of a module."""

    module: str
    path: Path
    facts: _Facts

    @classmethod
    def read(cls, module: str) -> Source:
        """Source of a module, from its file."""
        path = _file_of(module)
        return cls(module, path, _facts(path.read_bytes()))

    @functools.cached_property
    def imports(self) -> set[str]:
        """Modules of this package that the module imports, with their parent packages."""
        found: set[str] = set()
        package = self.module if self.path.name == "__init__.py" else self.module.rpartition(".")[0]
        for level, name, taken in self.facts.imported:
            base = importlib.util.resolve_name("." * level + name, package) if level else name
            parts = [f"{base}.{part}" for part in taken]
            for each in (base, *(part for part in parts if _is_ours(part) and _place(part))):
                found.update(_with_packages(each) if _is_ours(each) else ())
        return found

    @functools.cached_property
    def data(self) -> set[Path]:
        """Data files beside the module that its text names."""
        files = {file for file in self.path.parent.iterdir() if file.suffix not in ("", ".py")}
        constants = _constants(self.path.read_bytes()) if files else frozenset()
        return {file for file in files if file.name in constants}


@functools.cache
def _facts(content: bytes) -> _Facts:
    tree = ast.parse(content)
    imported: list[tuple[int, str, tuple[str, ...]]] = []
    for node in _import_statements(tree):
        if isinstance(node, ast.Import):
            imported += [(0, alias.name, ()) for alias in node.names]
        else:
            imported.append((node.level, node.module or "", tuple(alias.name for alias in node.names)))
    words = (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in tree.body)
    return _Facts(tuple(imported), not all(words))


@functools.cache
def _constants(content: bytes) -> frozenset[object]:
    """Constants in the module's text."""
    return frozenset(node.value for node in ast.walk(ast.parse(content)) if isinstance(node, ast.Constant))


def _import_statements(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Import statements at any depth that can run."""
    for child in _that_run(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _import_statements(child)


def _that_run(node: ast.AST) -> Iterable[ast.AST]:
    if isinstance(node, ast.If):
        test = node.test
        name = test.id if isinstance(test, ast.Name) else test.attr if isinstance(test, ast.Attribute) else ""
        if name == "TYPE_CHECKING":
            return node.orelse
    return ast.iter_child_nodes(node)


def _is_ours(module: str) -> bool:
    return module.split(".", 1)[0] in (PACKAGE.name, OWN_METHODS)


def _with_packages(module: str) -> list[str]:
    """Module with its parent packages: `a.b.c` -> a, a.b, a.b.c; an outside module alone."""
    if not _is_ours(module):
        return [module]
    parts = module.split(".")
    names = [".".join(parts[: end + 1]) for end in range(len(parts))]
    # Folders in `own_methods/` have no `__init__.py`.
    return names if parts[0] == PACKAGE.name else [name for name in names if name == module or _place(name)]


def _place(module: str) -> Path | None:
    """File of a module of this package; None without a file."""
    root = Path() if module.split(".", 1)[0] == OWN_METHODS else PACKAGE.parent
    path = root.joinpath(*module.split("."))
    for file in (path / "__init__.py", path.with_suffix(".py")):
        if file.is_file():
            return file
    return None


def _file_of(module: str) -> Path:
    if _is_ours(module):
        found = _place(module)
    else:
        file = getattr(sys.modules.get(module), "__file__", None)
        found = Path(file) if file else None
    if found is None:
        raise ModuleNotFoundError(f"{module}: neither a file of the package nor a loaded module", name=module)
    return found
