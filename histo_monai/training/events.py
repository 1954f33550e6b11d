"""TensorBoard event files of running trainings; hyperparameters and final measures of finished trainings.

| tag | what | points |
|---|---|---|
| `<measure>/train`, `<measure>/validation` | means over an epoch, as in curves.csv: loss, accuracy, ... | epochs |
| `loss/batch` | loss of one batch | every tenth step |
| `pretext_<measure>/...` | measures of a pretraining | as above |
| `learning_rate/<group>` | learning rate of a parameter group; with two groups: head, backbone | epochs |
| `images_per_second` | training images, with reading, without validation | epochs |
| `pictures/answers`, `pictures/pairs` | validation patches, weak and strong views; with predictions | epochs |
| `final/validation_<measure>` | measure of the saved weights, as in metrics.json | one |

Fine-tunings and students have common tags, so one chart shows both. Steps are the optimizer's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from histo_monai.utils.ranks import num_ranks
from histo_monai.utils.storage import disk_full_in_words

if TYPE_CHECKING:  # Importing Ignite takes seconds, which whatever trains no network saves.
    from ignite.engine import Engine

_STAGES = ("pretrain", "finetune", "consistency")
_FIRST = ("stage", "method", "student", "alpha", "mu")
"""Hyperparameters that TensorBoard shows by default."""
_MEASURES = ("accuracy", "absolute_error", "loss")
"""Final measures in the columns beside them."""
_OF_END = ".end"
"""Suffix of the file of a finished training."""


@dataclass(frozen=True)
class Hyperparameters:
    """Hyperparameters by which TensorBoard compares trainings; None or an empty text where a training has none.

    Attributes:
        stage: one of `_STAGES`.
        dataset: dataset of the labels, or pretraining dataset.
        method: pretraining method.
        student: semi-supervised method.
        encoder: seed of the pretraining.
        seed: seed of the later stages.
        alpha, mu, n_aug, patch_px: as in params.yaml.
        epochs, batch_size, lr: of this training.
    """

    stage: str
    dataset: str
    method: str
    encoder: int
    patch_px: int
    student: str = ""
    seed: int | None = None
    alpha: float | None = None
    mu: int | None = None
    n_aug: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    lr: float | None = None

    def with_schedule(self, section: object) -> Hyperparameters:
        """Hyperparameters with epochs, batch_size and lr of a params section, where present."""
        names = (name for name in ("epochs", "batch_size", "lr") if hasattr(section, name))
        return dataclasses.replace(self, **{name: getattr(section, name) for name in names})


def attach_tensorboard(
    folder: Path,
    trainer: Engine,
    evaluator: Engine,
    optimizer: torch.optim.Optimizer,
    pictures: Mapping[str, Callable[[], np.ndarray]],
    *,
    prefix: str,
    images_per_step: int,
    first_step: int,
) -> None:
    """Write event files (table of the module) during a training.

    Args:
        trainer: outputs are dicts of Shape (n,) tensors.
        evaluator: runs before this handler of the trainer's EPOCH_COMPLETED.
        optimizer: source of the learning rates.
        pictures: by name; each gives (H, W, 3) uint8 after validation.
        prefix: before the names of measures.
        images_per_step: of this process.
        first_step: 1, or the first step of a resumed training; earlier events from there on are discarded.
    """
    from ignite.engine import Events
    from ignite.handlers import Timer
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder), purge_step=first_step if first_step > 1 else None)
    timer = Timer(average=False)
    timer.attach(
        trainer, start=Events.EPOCH_STARTED, pause=Events.ITERATION_COMPLETED, resume=Events.GET_BATCH_STARTED
    )

    def log_batch(engine: Engine) -> None:
        loss = float(engine.state.output["loss"].mean())
        writer.add_scalar(f"{prefix}loss/batch", loss, engine.state.iteration)

    def log_epoch(engine: Engine) -> None:
        step = engine.state.iteration
        for part, of_part in (("train", engine), ("validation", evaluator)):
            for name, value in of_part.state.metrics.items():
                writer.add_scalar(f"{prefix}{name}/{part}", value, step)
        for number, group in enumerate(optimizer.param_groups):
            writer.add_scalar(f"learning_rate/{number}", float(group["lr"]), step)
        images = engine.state.epoch_length * images_per_step * num_ranks()
        writer.add_scalar("images_per_second", images / max(timer.value(), 1e-9), step)
        for name, picture in pictures.items():
            writer.add_image(f"pictures/{name}", picture(), step, dataformats="HWC")
        writer.flush()

    trainer.add_event_handler(Events.ITERATION_COMPLETED(every=10), log_batch)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, log_epoch)
    trainer.add_event_handler(Events.COMPLETED, writer.close)


def write_end(folder: Path, hyperparameters: Hyperparameters, metrics: Mapping[str, float]) -> None:
    """Add hyperparameters and final measures for TensorBoard's tab HPARAMS; repeated calls write one file.

    Args:
        metrics: as in metrics.json; names that begin with "validation_" are written.

    Raises:
        DiskFullError: the disk is full.
    """
    from torch.utils.tensorboard import FileWriter
    from torch.utils.tensorboard.summary import scalar

    for earlier in folder.glob(f"*{_OF_END}"):
        earlier.unlink()
    final = {f"final/{name}": value for name, value in metrics.items() if name.startswith("validation_")}
    with (
        writing_events(folder),
        contextlib.closing(FileWriter(str(folder), filename_suffix=_OF_END)) as writer,
    ):
        for summary in (*_summaries(hyperparameters), *(scalar(*named) for named in final.items())):
            writer.add_summary(summary)


def _summaries(hyperparameters: Hyperparameters) -> Iterator[Any]:
    """Records of TensorBoard's plugin: columns, values, and successful end.

    The plugin reads columns of the first run only, so every training names all columns.
    """
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import api_pb2, metadata
    from tensorboard.plugins.hparams.plugin_data_pb2 import (
        HParamsPluginData,
        SessionEndInfo,
        SessionStartInfo,
    )

    columns, start = api_pb2.Experiment(), SessionStartInfo()
    for field in dataclasses.fields(hyperparameters):
        value = getattr(hyperparameters, field.name)
        kind = api_pb2.DATA_TYPE_STRING if field.type == "str" else api_pb2.DATA_TYPE_FLOAT64
        column = columns.hparam_infos.add(name=field.name, type=kind, differs=field.name in _FIRST)
        if field.name == "stage":
            column.domain_discrete.extend(_STAGES)  # boxes to choose by
        if isinstance(value, str):
            start.hparams[field.name].string_value = value
        elif value is not None:
            start.hparams[field.name].number_value = value
    for name in _MEASURES:
        measure = api_pb2.MetricName(tag=f"final/validation_{name}")
        columns.metric_infos.add(name=measure, display_name=name.replace("_", " "))
    for tag, data in (
        (metadata.EXPERIMENT_TAG, HParamsPluginData(experiment=columns)),
        (metadata.SESSION_START_INFO_TAG, HParamsPluginData(session_start_info=start)),
        (
            metadata.SESSION_END_INFO_TAG,
            HParamsPluginData(session_end_info=SessionEndInfo(status=api_pb2.STATUS_SUCCESS)),
        ),
    ):
        about = metadata.create_summary_metadata(data)
        yield Summary(value=[Summary.Value(tag=tag, metadata=about, tensor=metadata.NULL_TENSOR)])


@contextlib.contextmanager
def writing_events(folder: Path) -> Iterator[None]:
    """Context that raises a disk-full error of the event-file thread in this thread, once.

    Raises:
        DiskFullError: the disk is full.
    """
    print_error = threading.excepthook
    threading.excepthook = lambda error: None if isinstance(error.exc_value, OSError) else print_error(error)
    try:
        with disk_full_in_words(folder):
            yield
    finally:
        threading.excepthook = print_error
