"""Calls on the workers of a Dask cluster: what local processes do with many slides, done by many machines.

HISTO_MONAI_CLUSTER gives the address of a scheduler, such as tcp://10.0.0.1:8786. Its workers see the project under the
path that it has here (a shared disk), have the same version of histo_monai, and one thread each: what decodes slides
is a process's own. Results are those of local processes, in the same order. A call whose worker dies is made again
by another one, three times at most.
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
    """Of the scheduler; None where this machine works alone."""
    return os.environ.get(VARIABLE) or None


def map_over_cluster(
    work: Callable[..., Result], columns: Sequence[Sequence[Any]], address: str
) -> Iterator[Result]:
    """What `work` gives for the first of each column, the second of each, and so on, as soon as each is there.

    Args:
        work: as of `map_over_processes`.
        columns: the arguments, of one length.

    Raises:
        InputError: the scheduler does not answer, or its workers are not as the module says; or a call ended so many
            workers that it is not made again.
    """
    try:
        from distributed import KilledWorker
    except ImportError:
        raise InputError(
            f"{VARIABLE} is set, and the package distributed is not installed: pip install './histo_monai[cluster]'"
        ) from None
    with _connected(address) as client:
        _check_workers(client)
        # Never as one of the same arguments before: a file may have changed in between.
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
                f"{VARIABLE}: {error.allowed_failures + 1} workers ended while they did the same call; do they have "
                "enough memory? Their logs say more"
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
            f"{VARIABLE}: no scheduler answers at {address} ({str(error).splitlines()[0]}); start it with `dask "
            "scheduler`, or unset the variable to work here alone"
        ) from None
    with client:
        yield client


def _check_workers(client: Client) -> None:
    """Refuse workers that would give other results, or none."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    if not workers:
        raise InputError(
            f"{VARIABLE}: the scheduler has no workers; start some with `dask worker --nthreads 1`"
        )
    for address, about in workers.items():
        if about["nthreads"] != 1:
            raise InputError(
                f"{VARIABLE}: worker {address} has {about['nthreads']} threads; start it with --nthreads 1, and as "
                "many workers as the machine has cores"
            )
    for address, (version, has_folder) in client.run(_about, os.getcwd()).items():
        if version != __version__:
            raise InputError(f"{VARIABLE}: worker {address} has histo_monai {version}, here is {__version__}")
        if not has_folder:
            raise InputError(
                f"{VARIABLE}: worker {address} does not see {os.getcwd()}; the project must lie on a disk that all "
                "share"
            )


def _about(folder: str) -> tuple[str, bool]:
    """Of a worker: its version, and whether it sees the project."""
    return __version__, os.path.isdir(folder)


def _in_project(_: int, *arguments: Any, work: Callable[..., Result], folder: str) -> Result:
    """One call, from the project's folder: its paths are relative to that."""
    if os.getcwd() != folder:
        os.chdir(folder)
    return work(*arguments)
