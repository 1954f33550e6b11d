"""Going on where a killed run was: the state after every epoch, under a fingerprint of what decides the result."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events

from histo_monai.utils.storage import whole_file

_LOG = logging.getLogger(__name__)


def fingerprint(content: object, files: Sequence[Path], code: str) -> str:
    """A digest of what decides a training: plain values, the bytes of files, and the code.

    Args:
        content: anything that JSON can hold.
        files: read whole.
    """
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for path in files:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    digest.update(code.encode())
    return digest.hexdigest()


class Stateful(Protocol):
    """What has a state to keep."""

    def state_dict(self) -> dict[str, Any]:
        """The state, of tensors, numbers, texts, lists and dicts."""

    def load_state_dict(self, state_dict: Any) -> Any:
        """Restore it."""


class ResumePoint:
    """Saves parts after every epoch and restores them when the same training is started again.

    The file is replaced in one step, so a run killed while saving leaves the state before. It holds tensors and plain
    values only and is read as such, so it never runs code.

    Args:
        path: the file; None saves nothing.
        fingerprint: of everything that decides the result.
        parts: by name.
    """

    def __init__(self, path: Path | None, fingerprint: str, parts: Mapping[str, Stateful]) -> None:
        self._path = path
        self._fingerprint = fingerprint
        self._parts = parts

    def attach(self, trainer: Engine) -> None:
        """To a trainer that is simply run, as MONAI's: goes on where a state was saved, saves after every epoch."""
        trainer.add_event_handler(Events.STARTED, self._go_on)
        trainer.add_event_handler(Events.EPOCH_COMPLETED, self.save)

    def _go_on(self, engine: Engine) -> None:
        engine.state.epoch = self.restore()
        engine.state.iteration = engine.state.epoch * engine.state.epoch_length

    def save(self, engine: Engine) -> None:
        """Handler of EPOCH_COMPLETED."""
        if self._path is None or idist.get_rank() > 0:
            return
        state = {name: part.state_dict() for name, part in self._parts.items()}
        saved = {"fingerprint": self._fingerprint, "epoch": engine.state.epoch, "parts": state}
        content = (
            io.BytesIO()
        )  # torch hides a full disk or quota behind a RuntimeError; writing bytes does not
        torch.save(saved, content)
        with whole_file(self._path) as draft:
            draft.write_bytes(content.getbuffer())

    def restore(self) -> int:
        """Restore a state saved under the same fingerprint; returns the epochs done, 0 if there is none."""
        if self._path is None or not self._path.is_file():
            return 0
        try:
            with warnings.catch_warnings(action="ignore"):  # of what a damaged file looks like
                saved = torch.load(self._path, map_location="cpu", weights_only=True)
        except (
            Exception
        ) as error:  # whatever a damaged file raises: it is ours, and worth no more than starting over
            _LOG.warning(
                "%s: cannot be read (%s); starting from the first epoch", self._path, type(error).__name__
            )
            return 0
        if saved["fingerprint"] != self._fingerprint:
            _LOG.info("%s: of another training; starting from the first epoch", self._path)
            return 0
        for name, part in self._parts.items():
            part.load_state_dict(saved["parts"][name])
        _LOG.info("%s: going on after epoch %d", self._path, saved["epoch"])
        return int(saved["epoch"])
