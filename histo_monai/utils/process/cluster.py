"""Run calls on the workers of a Dask cluster, in place of local processes.

HISTO_MONAI_CLUSTER is the scheduler address, such as tcp://10.0.0.1:8786. Workers must see the project under its local
path (a network disk), have an equal version of histo_monai, and run one thread each, because slide decoders are per
process. Results equal those of local processes, in equal order. If a worker dies, another worker repeats its call, at
most three times.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from histo_monai import __version__
from histo_monai.utils.errors import InputError

if TYPE_CHECKING:
    from distributed import Client

VARIABLE = "HISTO_MONAI_CLUSTER"
_TIMEOUT_S = 30
Result = TypeVar("Result")


def cluster_address() -> str | None:
    """Address of the scheduler; None without a cluster."""
    return os.environ.get(VARIABLE) or None


def map_over_cluster(
    work: Callable[..., Result], columns: Sequence[Sequence[Any]], address: str
) -> Iterator[Result]:
    """Results of `work` for the i-th entries of all columns, in order, as they arrive.

    Args:
        work: Function as for `map_over_processes`.
        columns: Arguments, all of one length.

    Raises:
        InputError: The scheduler does not answer, its workers violate the module's rules, or one call ended several
            workers.
    """
    try:
        from distributed import KilledWorker
    except ImportError:
        raise InputError(
            f"{VARIABLE}: the package distributed is not installed. Fix: pip install './histo_monai[cluster]'."
        ) from None
    with _connected(address) as client:
        _check_workers(client)
        # Not cached by arguments: a file may have changed since an earlier call.
        calls = client.map(
            _in_project, range(len(columns[0])), *columns, work=work, folder=os.getcwd(), pure=False
        )
        try:
            for call in calls:
                result: Result = call.result()
                call.release()
                yield result
        except KilledWorker as error:
            raise InputError(
                f"{VARIABLE}: {error.allowed_failures + 1} workers ended during one call. Fix: read their logs, and "
                "give them more memory."
            ) from None
        finally:
            client.cancel(calls, force=True)


@contextlib.contextmanager
def _connected(address: str) -> Iterator[Client]:
    from distributed import Client

    try:
        client = Client(address, timeout=_TIMEOUT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(
            f"{VARIABLE}: no scheduler answers at {address} ({str(error).splitlines()[0]}). Fix: start it with `dask "
            "scheduler`, or unset the variable to work locally."
        ) from None
    with client:
        yield client


def _check_workers(client: Client) -> None:
    """Refuse workers that would fail or give other results."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    if not workers:
        raise InputError(
            f"{VARIABLE}: the scheduler has no workers. Fix: start some with `dask worker --nthreads 1`."
        )
    for address, about in workers.items():
        if about["nthreads"] != 1:
            raise InputError(
                f"{VARIABLE}: worker {address} has {about['nthreads']} threads. Fix: start it with --nthreads 1, and "
                "as many workers as the machine has cores."
            )
    for address, (version, has_folder) in client.run(_about, os.getcwd()).items():
        if version != __version__:
            raise InputError(
                f"{VARIABLE}: worker {address} has histo_monai {version}. Fix: install {__version__} there."
            )
        if not has_folder:
            raise InputError(
                f"{VARIABLE}: worker {address} does not see {os.getcwd()}. Fix: put the project on a disk that all "
                "machines mount."
            )


def _about(folder: str) -> tuple[str, bool]:
    """Version of a worker, and whether it sees the project."""
    return __version__, os.path.isdir(folder)


def _in_project(_: int, *arguments: Any, work: Callable[..., Result], folder: str) -> Result:
    """One call inside the project's folder, because paths are relative to it."""
    if os.getcwd() != folder:
        os.chdir(folder)
    return work(*arguments)
