"""Sections of former params files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from histo_monai.data.readers.registry import DATASETS
from histo_monai.utils.settings.reader import ParamsError
from histo_monai.utils.settings.recipe import LABEL_KINDS

_KINDS = "stain_jitter: {two_classes: 0.1, many_classes: 0.0, scores: 0.0}"
_DATASETS = "lr: {camelyon16: 0.003, own: 0.0003}"


def refuse_former_sections(tree: object) -> None:
    """Refuse a recipe for each kind of labels and a training for each dataset.

    Raises:
        ParamsError: names the section and its present form.
    """
    for stage in ("finetune", "consistency"):
        section = _section(tree, stage)
        for kind, recipe in _former(_section(section, "recipe"), LABEL_KINDS):
            form = f"each value below {stage}.recipe once, or by kind of labels as {_KINDS}"
            form = f"{stage}.recipe: null" if recipe is None else form
            raise ParamsError(
                f"{stage}.recipe.{kind}: all kinds of labels have one recipe. Fix: write {form}"
            )
        for dataset, _ in _former(section, DATASETS):
            raise ParamsError(
                f"{stage}.{dataset}: all datasets have one section, {stage}.paper. Fix: write each value below "
                f"{stage}.paper once, or by dataset as {_DATASETS}"
            )


def _section(tree: object, key: str) -> object:
    return tree.get(key) if isinstance(tree, Mapping) else None


def _former(section: object, names: Iterable[str]) -> Iterator[tuple[object, object]]:
    if isinstance(section, Mapping):
        yield from ((key, section[key]) for key in names if key in section)
