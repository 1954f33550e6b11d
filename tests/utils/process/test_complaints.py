from __future__ import annotations

import ctypes
import os
import threading

import pytest

from histo_monai.utils.process.complaints import Complaints

libc = ctypes.CDLL(None)


def print_in_c(text: str) -> None:
    libc.printf(b"%s", text.encode())


def complain_in_c(text: str) -> None:
    libc.fprintf(ctypes.c_void_p.in_dll(libc, "stderr"), b"%s", text.encode())


@pytest.mark.parametrize("printer", [print_in_c, complain_in_c])
def test_what_c_libraries_print_is_captured_and_not_shown(printer, capfd):
    with Complaints() as complaints:
        printer("bad Huffman code\nin line 5\n")
    with Complaints() as nothing:
        pass
    assert (complaints.text, nothing.text) == ("bad Huffman code in line 5", "")
    assert capfd.readouterr() == ("", "")


def test_what_python_prints_meanwhile_is_shown_and_no_complaint(capfd):
    with Complaints() as complaints:
        os.write(1, b"to the terminal\n")
        os.write(2, b"a progress bar\n")
    assert complaints.text == ""
    assert capfd.readouterr() == ("to the terminal\n", "a progress bar\n")


def test_afterwards_c_libraries_print_again(capfd):
    with Complaints():
        pass
    complain_in_c("seen")
    assert capfd.readouterr().err == "seen"


def test_a_flood_is_a_complaint_of_bounded_size():
    with Complaints() as complaints:
        for _ in range(3000):
            print_in_c("line after line after line after line\n")
    assert 0 < len(complaints.text) <= 2**16
    with Complaints() as nothing:
        pass
    assert nothing.text == ""


def test_threads_that_decode_at_once_each_see_what_was_printed():
    begun, printed = threading.Barrier(2), threading.Barrier(2)
    texts = {}

    def decode(name: str, prints: bool) -> None:
        with Complaints() as complaints:
            begun.wait(10)
            if prints:
                print_in_c("damage")
            printed.wait(10)
        texts[name] = complaints.text

    threads = [threading.Thread(target=decode, args=("sound", False))]
    threads.append(threading.Thread(target=decode, args=("damaged", True)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts["damaged"] == "damage"


def test_a_child_forked_while_another_thread_decodes_prints_to_the_terminal(capfd):
    begun, forked = threading.Event(), threading.Event()

    def decode() -> None:
        with Complaints():
            begun.set()
            forked.wait(10)

    thread = threading.Thread(target=decode)
    thread.start()
    begun.wait(10)
    child = os.fork()
    if child == 0:
        complain_in_c("from the child")
        with Complaints() as complaints:
            print_in_c("kept")
        os._exit(0 if complaints.text == "kept" else 1)
    assert os.waitpid(child, 0)[1] == 0
    forked.set()
    thread.join()
    assert capfd.readouterr().err == "from the child"
