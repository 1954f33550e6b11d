"""What the site has beside docs/: a menu, the API, notebooks as pages, and pages that lie at the root of the source.

docs/ is read in git and in users' projects, too, so what only a site can show is made here, by MkDocs' events.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
MENU = "README.md"
FROM_ROOT = ("CONTRIBUTING.md", "CHANGELOG.md", "params.yaml")
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
OF_SOURCE = "`([A-Z]+\\.md)` of the source"

API = {
    "wsi.api": ["wsi.api", "slides.tiles.boxes", "wsi.heatmaps.heatmap"],
    "slides": ["slides"],
    "slides.annotations": ["slides.annotations"],
    "transforms": ["transforms.views", "transforms.supervised", "transforms.randaugment"],
    "models": [
        "models.task_model",
        "models.encoder",
        "models.weights",
        "utils.files.tensors",
        "models.heads.pairs",
        "models.heads.task",
    ],
    "models.losses": ["models.losses"],
    "evaluation.metrics": ["evaluation.metrics"],
    "evaluation.comparison": [
        "evaluation.comparison.paired",
        "evaluation.comparison.models",
        "evaluation.comparison.multiplicity",
        "evaluation.comparison.learning_curve",
    ],
    "wsi.diagnosis": [
        "wsi.diagnosis.features",
        "wsi.diagnosis.classifier",
        "wsi.diagnosis.lesions",
        "wsi.diagnosis.detections",
    ],
    "wsi.mil": ["wsi.mil.network", "wsi.mil.training", "wsi.mil.bags"],
    "wsi.export": [
        "wsi.export.parts",
        "wsi.export.bundle",
        "wsi.export.onnx",
        "wsi.export.trunk",
        "wsi.export.back",
    ],
    "parts": [
        *("pretraining.protocol", "semisupervised.protocol", "data.readers.protocol"),
        *("utils.settings.rules", "utils.settings.registry"),
    ],
}
"""Page -> modules below `histo_monai` whose public names stand on it."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The menu: docs/README.md, a part for each heading, a page for each item of its lists."""
    config.nav = [{"Home": MENU}, *menu((Path(config.docs_dir) / MENU).read_text(encoding="utf-8"))]
    return config


def menu(page: str) -> list[dict[str, Any]]:
    """Parts of the menu, {title: [{title: path}, ...]}, from a page with `## Title` and `- [Title](path): ...`.

    A page at the root, where no link of docs/ can lead in a user's project, is `- Title, `PATH` of the source`.
    """
    page = re.sub(rf"(?m)^- (.+), {OF_SOURCE}", r"- [\1](\2)", page)
    parts: list[dict[str, Any]] = []
    for heading, title, path in re.findall(r"(?m)^(?:## (.+)|- \[([^\]]+)\]\(([^)#]+)\).*)$", page):
        if heading:
            parts.append({heading: []})
        elif not path.startswith("http"):
            next(iter(parts[-1].values())).append({title: path})
    api = {"API": [{f"histo_monai.{name}" if name != "parts" else "Parts": f"api/{name}.md"} for name in API]}
    notebooks = {
        "Notebooks": [{_title(page): f"notebooks/{path.stem}.md"} for path, page in _notebook_pages()]
    }
    return [*parts, notebooks, api]


def notebook_page(text: str) -> str:
    """Markdown of a notebook: its texts, and its code in blocks; without what the code prints."""
    cells = json.loads(text)["cells"]
    sources = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    return "\n\n".join(
        source if kind == "markdown" else f"```python\n{source}\n```" for kind, source in sources
    )


def _notebook_pages() -> list[tuple[Path, str]]:
    return [(path, notebook_page(path.read_text(encoding="utf-8"))) for path in NOTEBOOKS]


def _title(page: str) -> str:
    return page.partition("\n")[0].removeprefix("# ")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Pages that do not lie in docs/ as Markdown: those of the root, notebooks, and the API."""
    for path in (*(ROOT / name for name in FROM_ROOT), Path(__file__).with_name("site.css")):
        files.append(File.generated(config, path.name, abs_src_path=str(path)))
    for path, page in _notebook_pages():
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page))
    for name, modules in API.items():
        files.append(File.generated(config, f"api/{name}.md", content=api_page(name, modules)))
    return files


def api_page(name: str, modules: list[str]) -> str:
    """Markdown of which mkdocstrings makes what the docstrings of the modules say."""
    title = "Parts that others can bring" if name == "parts" else f"histo_monai.{name}"
    return "\n\n".join([f"# {title}", *(f"::: histo_monai.{module}" for module in modules)])


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to the root and to notebooks become links within the site; lists begin as they do in git."""
    markdown = markdown.replace(".ipynb)", ".md)")
    markdown = re.sub(OF_SOURCE, r"[\1](\1)", markdown.replace("](../params.yaml)", "](params.yaml)"))
    if page.file.src_uri in FROM_ROOT:
        markdown = markdown.replace("](docs/", "](")
    return with_blank_lines(markdown)


def with_blank_lines(markdown: str) -> str:
    """Markdown with a blank line before each list, which git's kind of it does without."""
    lines: list[str] = []
    in_code = False
    for line in markdown.split("\n"):
        in_code ^= line.startswith("```")
        begins = re.match(r"([-*]|\d+\.) ", line)
        if begins and not in_code and lines and lines[-1].strip() and not _in_list(lines):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def _in_list(lines: list[str]) -> bool:
    """Whether the paragraph that ends here is one of a list."""
    for line in reversed(lines):
        if re.match(r"([-*]|\d+\.) ", line):
            return True
        if not line.startswith("  "):
            return False
    return False
