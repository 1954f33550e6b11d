"""Few labels, many slides: semi-supervised learning on whole-slide histopathology."""

import os
import sys

__version__ = "0.1.0"

_opencv_threads = 1


def _end_opencv_threads() -> None:
    """Before a fork: a child does not have OpenCV's threads, and crashes or hangs when it changes their number."""
    global _opencv_threads
    cv2 = sys.modules.get("cv2")
    if cv2 is not None:
        _opencv_threads = cv2.getNumThreads()
        cv2.setNumThreads(1)


def _allow_opencv_threads() -> None:
    """After a fork, in the parent: OpenCV may start them again; the child stays with one."""
    cv2 = sys.modules.get("cv2")
    if cv2 is not None:
        cv2.setNumThreads(_opencv_threads)


os.register_at_fork(before=_end_opencv_threads, after_in_parent=_allow_opencv_threads)
