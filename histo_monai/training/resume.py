"""Resume of killed trainings from the state after every epoch, under a fingerprint."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from histo_monai.utils.ranks import this_rank
from histo_monai.utils.storage import file_sha256, whole_file

if TYPE_CHECKING:  # Importing Ignite takes seconds, which whatever trains no network saves.
    from ignite.engine import Engine

_LOG = logging.getLogger(__name__)


def fingerprint(content: object, files: Sequence[Path], code: str) -> str:
    """Digest of everything that decides a training: values, file contents, and code.

    Args:
        content: any JSON value.
    """
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for path in files:
        digest.update(bytes.fromhex(file_sha256(path)))
    digest.update(code.encode())
    return digest.hexdigest()


class Stateful(Protocol):
    """An object with a state to save and restore."""

    def state_dict(self) -> dict[str, Any]:
        """State of tensors, numbers, texts, lists and dicts."""

    def load_state_dict(self, state_dict: Any) -> Any:
        """Restore a state from `state_dict`."""


class ResumePoint:
    """File with the state of parts after every epoch, restored when an equal training starts.

    The file is replaced atomically, so a kill during saving leaves the earlier state. It is read as tensors and simple
    values only, so it never runs code.

    Args:
        path: the file; None saves nothing.
        fingerprint: digest of everything that decides the result.
        parts: by name.
    """

    def __init__(self, path: Path | None, fingerprint: str, parts: Mapping[str, Stateful]) -> None:
        self._path = path
        self._fingerprint = fingerprint
        self._parts = parts

    def attach(self, trainer: Engine) -> None:
        """Attach to a trainer such as MONAI's: resume a saved state at the start, save after every epoch."""
        from ignite.engine import Events

        trainer.add_event_handler(Events.STARTED, self._go_on)
        trainer.add_event_handler(Events.EPOCH_COMPLETED, self.save)

    def _go_on(self, engine: Engine) -> None:
        engine.state.epoch = self.restore()
        engine.state.iteration = engine.state.epoch * engine.state.epoch_length

    def save(self, engine: Engine) -> None:
        """Save the state; handler of EPOCH_COMPLETED."""
        if self._path is None or this_rank() > 0:
            return
        state = {name: part.state_dict() for name, part in self._parts.items()}
        saved = {"fingerprint": self._fingerprint, "epoch": engine.state.epoch, "parts": state}
        content = io.BytesIO()  # torch.save to a file reports a full disk as RuntimeError
        torch.save(saved, content)
        with whole_file(self._path) as draft:
            draft.write_bytes(content.getbuffer())

    def restore(self) -> int:
        """Restore a state of equal fingerprint; returns the number of finished epochs, 0 without a state."""
        if self._path is None or not self._path.is_file():
            return 0
        try:
            with warnings.catch_warnings(action="ignore"):  # damaged files cause misleading warnings
                saved = torch.load(self._path, map_location="cpu", weights_only=True)
        except Exception as error:  # damaged files raise many types; the file is our own and replaceable
            _LOG.warning(
                "Checkpoint %s is not readable (%s); starting at epoch 1.", self._path, type(error).__name__
            )
            return 0
        if saved["fingerprint"] != self._fingerprint:
            _LOG.info("Checkpoint %s does not match this configuration; starting at epoch 1.", self._path)
            return 0
        for name, part in self._parts.items():
            part.load_state_dict(saved["parts"][name])
        _LOG.info("Checkpoint %s: resuming after epoch %d", self._path, saved["epoch"])
        return int(saved["epoch"])
