from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool

import pytest

from histo_monai.process.failures import machine_failure
from histo_monai.process.sharing import Helpers, num_sharing, share_with, shared_zeros


@pytest.fixture
def memory():
    return shared_zeros(8)


@pytest.fixture
def helpers(memory):
    def work(place: int, number: int) -> None:
        if number == 0:
            raise ValueError("nothing to write")
        if number < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        memory[place] = number

    some = Helpers(2, work)
    yield some
    some.end()


def test_parts_are_done_in_memory_that_is_shared(helpers, memory):
    for number in (7, 8):
        helpers.ask(0, 1, number)
        helpers.ask(1, 5, number + 1)
        helpers.wait(0)
        helpers.wait(1)
        assert memory.tolist() == [0, number, 0, 0, 0, number + 1, 0, 0]


def test_an_error_of_a_part_is_raised_here_and_the_helper_goes_on(helpers, memory):
    helpers.ask(0, 1, 0)
    with pytest.raises(ValueError, match="nothing to write"):
        helpers.wait(0)
    helpers.ask(0, 1, 9)
    helpers.wait(0)
    assert memory[1] == 9


def test_a_helper_that_is_killed_is_told_in_one_line(helpers):
    helpers.ask(1, 0, -1)
    with pytest.raises(BrokenProcessPool) as raised:
        helpers.wait(1)
    line = machine_failure(BrokenProcessPool, str(raised.value))
    assert line is not None
    assert "was killed, mostly for lack of memory" in line
    helpers.processes[1].join()
    with pytest.raises(BrokenProcessPool):
        helpers.ask(1, 0, 1)


def test_a_forked_process_shares_with_nobody():
    share_with(3)
    try:
        child = os.fork()
        if child == 0:
            os._exit(num_sharing())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        assert num_sharing() == 3
    finally:
        share_with(1)


SCRIPT = """
import time
from histo_monai.process.sharing import Helpers

helpers = Helpers(3, print)
print(*(process.pid for process in helpers.processes), flush=True)
time.sleep(60)
"""


def test_helpers_end_with_a_process_that_is_killed():
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 3
        assert all(is_running(pid) for pid in pids)
        process.kill()
    deadline = time.monotonic() + 20
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline, "helpers outlive the process that they help"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    """Not ended; one that nobody has asked for its status has."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
