"""Processes that are forked: what libraries need before one, and after."""

from __future__ import annotations

import functools
import gc
import os

import cv2

_threads = 1


@functools.cache
def end_opencv_threads_before_forks() -> None:
    """From now on, and once: a child does not have OpenCV's threads, and crashes or hangs when it changes their number.

    Before a fork they end; in the parent OpenCV may start them again afterwards, the child stays with one.
    """
    os.register_at_fork(before=_end, after_in_parent=_allow)


def _end() -> None:
    global _threads
    _threads = cv2.getNumThreads()
    cv2.setNumThreads(1)


def _allow() -> None:
    cv2.setNumThreads(_threads)


@functools.cache
def leave_garbage_to_parents() -> None:
    """From now on, and once: a child never frees what waits in its parent to be found as garbage.

    A CUDA graph that a child frees ends it: CUDA knows no child.
    """
    os.register_at_fork(after_in_child=gc.freeze)
