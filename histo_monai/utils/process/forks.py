"""Hooks around forks, for OpenCV and the garbage collector."""

from __future__ import annotations

import functools
import gc
import os

import cv2

_threads = 1


@functools.cache
def end_opencv_threads_before_forks() -> None:
    """End OpenCV's threads before every fork: a child without them crashes or hangs when it changes their number.

    The parent may restart them after the fork; the child uses one thread.
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
    """Freeze the parent's garbage in every forked child: freeing a CUDA graph would end the child."""
    os.register_at_fork(after_in_child=gc.freeze)
