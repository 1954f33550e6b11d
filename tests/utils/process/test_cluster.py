"""A Dask cluster on this machine, of processes of its own: what it computes is what this process does."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from histo_monai.models.checkpoint import save_model
from histo_monai.models.encoder import build_encoder
from histo_monai.models.task_model import TaskModel
from histo_monai.pipeline.cli import main
from histo_monai.slides import SlideError
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.utils.errors import InputError
from histo_monai.utils.process import cluster
from histo_monai.utils.process.cluster import VARIABLE, map_over_cluster
from histo_monai.utils.process.processes import map_over_processes
from histo_monai.wsi.inference.heatmaps import map_slides
from histo_monai.wsi.inference.jobs import SlideJob
from histo_monai.wsi.inference.models import MapPlan
from tests.folders import NewFolder

pytestmark = pytest.mark.slow
ENOUGH_S = 120


class Cluster:
    """A scheduler and its workers, none of which lies in the project's folder."""

    def __init__(self, folder: Path, root: Path) -> None:
        self._folder, self._root = folder, root
        self._file = folder / "scheduler.json"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._workers: list[subprocess.Popen[bytes]] = []
        self.address = ""

    def start(self) -> None:
        """The scheduler; its address is known afterwards."""
        process = self._start("scheduler", "--port", "0", "--scheduler-file", str(self._file))

        def is_known() -> bool:  # the file is there before the address stands in it
            assert process.poll() is None, f"the scheduler has ended, see {self._folder}"
            with contextlib.suppress(OSError, json.JSONDecodeError):
                self.address = json.loads(self._file.read_text())["address"]
            return bool(self.address)

        until(is_known)

    def _start(self, what: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            f"distributed.cli.dask_{what}",
            "--no-dashboard",
            "--host",
            "127.0.0.1",
        ]
        environment = {**os.environ, "PYTHONPATH": str(self._root), "OMP_NUM_THREADS": "1"}
        environment.pop(VARIABLE, None)
        with (self._folder / f"{what}-{len(self._processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [*command, *arguments],
                cwd=self._folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)
        return process

    def with_workers(self, num: int) -> str:
        """Its address, once it has so many workers of one thread: those left by other tests, and new ones."""
        from distributed import Client

        self._workers = [worker for worker in self._workers if worker.poll() is None]
        while len(self._workers) > num:
            self.end_worker(self._workers[-1])
        while len(self._workers) < num:
            self.add_worker()
        with Client(self.address, set_as_default=False) as client:
            until(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == num)
        return self.address

    def add_worker(self, threads: int = 1) -> subprocess.Popen[bytes]:
        """Started, and known to the scheduler."""
        from distributed import Client

        process = self._start(
            "worker", "--scheduler-file", str(self._file), "--nthreads", str(threads), "--no-nanny"
        )
        self._workers.append(process)
        with Client(self.address, set_as_default=False) as client:
            pids = lambda: client.run(os.getpid).values()  # noqa: E731  # asked again and again
            until(lambda: process.pid in pids())
        return process

    def end_worker(self, process: subprocess.Popen[bytes]) -> None:
        """A worker."""
        process.kill()
        process.wait()
        self._workers.remove(process)

    def end(self) -> None:
        """All processes."""
        for process in self._processes:
            process.kill()
            process.wait()


def until(is_so: Callable[[], bool]) -> None:
    """Wait, but not for ever."""
    end = time.monotonic() + ENOUGH_S
    while not is_so():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def made(module_folder: NewFolder, root: Path) -> Iterator[Cluster]:
    """A cluster without workers: a process imports for seconds, so tests leave theirs to the next."""
    one = Cluster(module_folder("cluster"), root)
    try:
        one.start()
        yield one
    finally:
        one.end()


def square(number: int, offset: int) -> tuple[int, int, str]:
    """And who computed it, where."""
    return number * number + offset, os.getpid(), os.getcwd()


def test_results_come_in_order_from_workers_in_the_folder_of_the_project(
    made: Cluster, module_folder: NewFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = module_folder("project")  # workers stay in it
    monkeypatch.chdir(project)
    monkeypatch.setenv(VARIABLE, made.with_workers(2))
    results = list(
        map_over_processes(square, range(40), range(100, 140), processes=1, title="squares", unit="number")
    )
    assert [value for value, _, _ in results] == [number**2 + 100 + number for number in range(40)]
    assert os.getpid() not in {pid for _, pid, _ in results}
    assert {folder for _, _, folder in results} == {str(project)}


def wait_once(number: int, folder: Path) -> int:
    """The first worker that comes to 3 stays there until it is killed."""
    (folder / f"{number}-{os.getpid()}").touch()
    if number == 3 and len(list(folder.glob("3-*"))) == 1:
        time.sleep(10 * ENOUGH_S)
    return number * number


def test_a_worker_that_is_killed_is_made_up_for(made: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "marks"
    folder.mkdir()
    results: list[int] = []
    address = made.with_workers(2)

    def collect() -> None:
        results.extend(map_over_cluster(wait_once, [range(12), [folder] * 12], address))

    thread = threading.Thread(target=collect)
    thread.start()
    until(lambda: bool(list(folder.glob("3-*"))))
    (mark,) = folder.glob("3-*")
    os.kill(int(mark.name.partition("-")[2]), signal.SIGKILL)
    thread.join(ENOUGH_S)
    assert results == [number**2 for number in range(12)]
    assert len(list(folder.glob("3-*"))) == 2


def always_ends(number: int) -> int:
    """A call that no worker survives."""
    os._exit(number)


def test_a_call_that_ends_worker_after_worker_is_a_sentence(made: Cluster) -> None:
    address = made.with_workers(4)
    with pytest.raises(InputError, match="4 workers ended during one call"):
        list(map_over_cluster(always_ends, [[1]], address))


def damaged(path: Path) -> None:
    """As a slide is."""
    raise SlideError(path, "the tile in row 1 is damaged")


def test_an_error_of_a_slide_is_reported_as_on_one_machine(made: Cluster) -> None:
    with pytest.raises(SlideError, match=r"^slide a\.svs: the tile in row 1 is damaged$") as raised:
        list(map_over_cluster(damaged, [[Path("a.svs")]], made.with_workers(1)))
    assert raised.value.path == Path("a.svs")


def test_workers_that_would_give_other_results_are_refused(
    made: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made.with_workers(0)
    with pytest.raises(
        InputError, match=r"the scheduler has no workers\. Fix: start some with `dask worker --nthreads 1`"
    ):
        list(map_over_cluster(abs, [[1]], made.address))
    made.add_worker()
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "__version__", "0.0.1")
        with pytest.raises(InputError, match=r"has histo_monai .*install 0\.0\.1 there"):
            list(map_over_cluster(abs, [[1]], made.address))
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr(os, "getcwd", lambda: str(gone))
    with pytest.raises(InputError, match=r"does not see .*. Fix: put the project on a disk"):
        list(map_over_cluster(abs, [[1]], made.address))
    monkeypatch.undo()
    with_two = made.add_worker(threads=2)
    with pytest.raises(InputError, match=r"has 2 threads\. Fix: start it with --nthreads 1"):
        list(map_over_cluster(abs, [[1]], made.address))
    made.end_worker(with_two)


def test_a_scheduler_that_does_not_answer_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_TIMEOUT_S", 1)
    for address in ("tcp://127.0.0.1:9", "nonsense://x", "127.0.0.1:notaport"):
        with pytest.raises(
            InputError, match=f"^{VARIABLE}: no scheduler answers at {address} .*`dask scheduler`"
        ):
            list(map_over_cluster(abs, [[1]], address))
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"pip install '\./histo_monai\[cluster\]'\.$"):
        list(map_over_cluster(abs, [[1]], "tcp://127.0.0.1:9"))


SLIDES = """slide_id,path,patient_id,split
skin,{0}/cmu-1-small-region.svs,s,train
breast,{0}/breast-lobular.tif,b,validation
duodenum,{0}/duodenum-adenoma.tif,d,train
"""


def test_an_index_and_maps_of_real_slides_have_the_same_bytes(
    made: Cluster,
    root: Path,
    real_slides: Path,
    module_folder: NewFolder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HISTO_MONAI_CPUS", "1")
    params: dict[str, Any] = yaml.safe_load((root / "params.yaml").read_text())
    params |= {
        "source": "raw",
        "dataset": "own",
        "pretraining_dataset": "own",
        "patch_px": 32,
        "pretraining_methods": ["random", "rsp"],
    }
    params["corpora"]["own"] |= {"num_train": 40, "num_validation": 10}
    torch.manual_seed(0)
    model = TaskModel(build_encoder(), "linear", 2)
    found: dict[str, dict[str, bytes]] = {}
    for where in ("here", "cluster"):
        project = module_folder(where)
        (project / "data/raw/own").mkdir(parents=True)
        (project / "data/raw/own/slides.csv").write_text(SLIDES.format(real_slides))
        (project / "params.yaml").write_text(yaml.safe_dump(params))
        monkeypatch.chdir(project)
        if where == "cluster":
            monkeypatch.setenv(VARIABLE, made.with_workers(2))
        assert main(["index"]) == 0
        about = model.encoder.description(architecture="", head="linear", patch_px=64, mpps=[4.0])
        about |= dict.fromkeys(("method", "source", "corpus"), "")
        about |= {"kind": "task model", "classes": ["normal", "tumor"], "patch_px": 64, "mpp": 4.0}
        save_model(Path("model.safetensors"), model.state_dict(), about)
        names = ("cmu-1-small-region.svs", "breast-lobular.tif", "duodenum-adenoma.tif")
        jobs = [
            SlideJob(name.partition("-")[0], real_slides / name, None, {"model": Path("model.safetensors")})
            for name in names
        ]
        plan = MapPlan(64, 4.0, 256.0, TissueRules(), 0.5, 32)
        map_slides(jobs, plan, ("tumor",), Path("maps"), device=torch.device("cpu"), workers=0, ranks=1)
        files = [
            path
            for part in ("data/index", "maps")
            for path in sorted(Path(part).rglob("*"))
            if path.is_file()
        ]
        found[where] = {str(path): path.read_bytes() for path in files}
    assert len(found["here"]) >= 10
    assert found["cluster"] == found["here"]
