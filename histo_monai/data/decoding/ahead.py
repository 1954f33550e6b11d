"""Batches prepared by a thread, on another CUDA stream, while the device works on earlier ones."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

AHEAD = 3
"""Batches that may wait."""

Rest = TypeVar("Rest")


def prepared_ahead(
    make: Callable[[], Iterator[tuple[torch.Tensor, Rest]]], stream: torch.cuda.Stream | None
) -> Iterator[tuple[torch.Tensor, Rest]]:
    """The items of an iterator that runs in a thread, each a tensor on the device with something beside it.

    An error of the thread is raised at the place of its item. The thread ends when the iteration ends or is given up.

    Args:
        make: Makes the iterator.
        stream: CUDA stream of the thread; None on a CPU.
    """
    items: queue.Queue[Any] = queue.Queue(AHEAD)
    is_given_up = threading.Event()

    def put(item: Any) -> bool:
        while not is_given_up.is_set():
            with contextlib.suppress(queue.Full):
                items.put(item, timeout=0.1)
                return True
        return False

    def run() -> None:
        try:
            with torch.cuda.stream(stream):
                for tensor, rest in make():
                    if not put((tensor, rest, None if stream is None else stream.record_event())):
                        return
            put(None)
        except BaseException as error:  # It belongs to the thread that waits.
            put(error)

    thread = threading.Thread(target=run, name="decoding", daemon=True)
    thread.start()
    try:
        while (item := items.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            tensor, rest, event = item
            if event is not None:
                current = torch.cuda.current_stream(tensor.device)
                current.wait_event(event)
                tensor.record_stream(current)
            yield tensor, rest
    finally:
        is_given_up.set()
        thread.join()
