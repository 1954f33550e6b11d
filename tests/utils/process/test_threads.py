from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from histo_monai.utils.process.threads import decode_with, in_order


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    decode_with(request.param)
    yield request.param
    decode_with(1)


def test_what_comes_is_in_the_order_asked_for(threads: int) -> None:
    delays = np.random.default_rng(threads).uniform(0, 0.004, 60)

    def work(number: int) -> int:
        time.sleep(delays[number])
        return number * number

    assert list(in_order(work, range(60))) == [number * number for number in range(60)]
    assert list(in_order(work, [])) == []


def test_as_many_work_at_a_time_as_there_are_threads_and_few_wait_to_be_taken(threads: int) -> None:
    lock, now, most, begun = threading.Lock(), 0, 0, 0

    def work(number: int) -> int:
        nonlocal now, most, begun
        with lock:
            now, begun = now + 1, begun + 1
            most = max(most, now)
        time.sleep(0.002)
        with lock:
            now -= 1
        return number

    for taken, _ in enumerate(in_order(work, range(100))):
        assert begun <= taken + 1 + 4 * threads
    assert most == threads


def test_an_error_comes_in_its_place_after_the_threads_have_ended(threads: int) -> None:
    busy = 0

    def work(number: int) -> int:
        nonlocal busy
        busy += 1
        time.sleep(0.003)
        busy -= 1
        if number == 5:
            raise ValueError("of the sixth")
        return number

    numbers = in_order(work, range(50))
    assert [next(numbers) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="of the sixth"):
        next(numbers)
    assert busy == 0


def test_a_forked_process_has_one_thread() -> None:
    decode_with(3)
    try:
        assert list(in_order(abs, [-1, -2])) == [1, 2]
        child = os.fork()
        if child == 0:
            here = {threading.get_ident() for _ in in_order(abs, range(20))}
            names = set(in_order(lambda _: threading.current_thread().name, range(20)))
            os._exit(0 if len(here) == 1 and names == {threading.current_thread().name} else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        decode_with(1)
