"""Matrix products warn of their numbers, not of the machine."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from histo_monai.utils.process.products import product


class _OnABusyMachine(np.ndarray):
    """Its product is right, and raises the flag "invalid value" all the same."""

    def __matmul__(self, other: Any) -> Any:
        np.sqrt(np.array(-1.0))
        return np.asarray(self) @ other


@pytest.mark.filterwarnings("error")
def test_a_flag_that_means_nothing_is_no_warning() -> None:
    a = np.ones((2, 5), np.float32).view(_OnABusyMachine)
    with pytest.raises(RuntimeWarning, match="invalid value"):
        a @ np.ones(5, np.float32)
    np.testing.assert_array_equal(product(a, np.ones(5, np.float32)), [5.0, 5.0])


@pytest.mark.parametrize(
    "shape", [((3, 5), (5,)), ((64, 7, 5), (5,)), ((9, 4), (4, 9)), ((5,), (5, 3)), ((2, 3, 4), (2, 4, 3))]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_bytes_are_those_of_the_operator(shape: tuple[tuple[int, ...], ...], dtype: Any) -> None:
    generator = np.random.default_rng(0)
    a, b = (generator.normal(size=size).astype(dtype) for size in shape)
    assert np.asarray(product(a, b)).tobytes() == np.asarray(a @ b).tobytes()


def test_a_product_too_large_for_its_type_is_warned_of() -> None:
    large = np.full((2, 2), 1e30, np.float32)
    with pytest.warns(RuntimeWarning, match="too large for its type"):
        assert np.isinf(product(large, large)).all()


@pytest.mark.filterwarnings("error")
def test_what_was_missing_before_is_not_warned_of() -> None:
    assert np.isnan(product(np.array([[np.nan, 1.0]]), np.ones(2)))


_WITHOUT_FLAGS = {"slides/coverage.py", "finetuning/heads/unlabeled/propagation.py"}
"""Whose matrices are sparse: SciPy multiplies them, and looks at no flags."""


def test_no_other_product_of_arrays_depends_on_the_machine(root: Path) -> None:
    names = set()
    for path in (root / "histo_monai").rglob("*.py"):
        name, text = path.relative_to(root / "histo_monai").as_posix(), path.read_text()
        if "import torch" in text or name in {"utils/process/products.py", *_WITHOUT_FLAGS}:
            continue
        for node in ast.walk(ast.parse(text)):
            named = isinstance(node, ast.Attribute) and node.attr == "matmul"
            if named or (isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.MatMult)):
                names.add(name)
    assert names == set()
