from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from histo_monai.pretext import PRETEXTS
from histo_monai.settings.registry import Registry


class Toy:
    pass


def test_a_method_is_imported_when_it_is_looked_up_and_not_before(root: Path) -> None:
    code = (
        "import sys\nfrom histo_monai.pretext import PRETEXTS\nassert 'moco' in PRETEXTS and len(list(PRETEXTS)) > 3\n"
        "seen = lambda: {n for n in sys.modules if n.startswith('histo_monai.pretext.') and n.endswith('.method')}\n"
        "assert not seen(), seen()\nPRETEXTS['moco']\nprint(*seen())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["histo_monai.pretext.moco.method"], done.stderr


def test_every_name_leads_to_a_class_in_the_folder_of_that_name(root: Path) -> None:
    folders = {path.parent.name for path in (root / "histo_monai/pretext").glob("*/__init__.py")}
    assert set(PRETEXTS) == folders
    for name, build in PRETEXTS.items():
        assert build.__module__ == f"histo_monai.pretext.{name}.method"


def test_a_method_from_elsewhere_is_one_line() -> None:
    methods = Registry(rsp="histo_monai.pretext.rsp.method:RSP")
    methods["toy"] = Toy
    assert methods["toy"] is Toy
    assert list(methods) == ["rsp", "toy"]
    methods["late"] = "collections:OrderedDict"
    assert methods["late"].__name__ == "OrderedDict"
    del methods["toy"]
    assert "toy" not in methods
    with pytest.raises(KeyError, match="toy"):
        methods["toy"]
