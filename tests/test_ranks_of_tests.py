"""What tests use to start processes."""

from __future__ import annotations

import importlib.util

from tests.ranks import preloaded


def test_every_module_that_the_server_of_processes_imports_is_one() -> None:
    assert [name for name in preloaded() if importlib.util.find_spec(name) is None] == []
