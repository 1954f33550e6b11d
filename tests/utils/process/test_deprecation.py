from __future__ import annotations

import inspect
import warnings

import pytest

from histo_monai.utils.process.deprecation import renamed_argument


@renamed_argument("stride", "stride_um", "0.3")
def _cells(side_um: float, stride_um: float = 1.0) -> float:
    return side_um / stride_um


def test_an_earlier_argument_works_with_a_warning_at_the_line_of_the_call() -> None:
    with pytest.warns(FutureWarning, match=r"_cells\(stride=\.\.\.\) is now called stride_um=\.\.\.") as seen:
        assert _cells(8.0, stride=2.0) == 4.0
    assert seen[0].filename == __file__


def test_the_present_argument_does_not_warn_and_the_signature_shows_it_alone() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _cells(8.0, stride_um=2.0) == _cells(8.0, 2.0) == 4.0
    assert list(inspect.signature(_cells).parameters) == ["side_um", "stride_um"]


def test_both_names_at_once_are_refused() -> None:
    with pytest.raises(TypeError, match="got both stride_um and its earlier name stride"):
        _cells(8.0, stride=2.0, stride_um=2.0)
