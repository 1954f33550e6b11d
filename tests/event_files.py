"""Event files as TensorBoard itself reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams.backend_context import Context
from tensorboard.plugins.hparams.list_session_groups import Handler


class Row(NamedTuple):
    """A row of the tab HPARAMS."""

    hyperparameters: dict[str, Any]
    metrics: dict[str, float]
    status: str


def read_events(folder: Path) -> EventAccumulator:
    """The event files of one run, all of each tag."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0})
    return events.Reload()


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Tag -> step and value of its points."""
    events = read_events(folder)
    return {
        tag: [(point.step, point.value) for point in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }


def table_of_runs(folder: Path) -> dict[str, Row]:
    """What the tab HPARAMS of `tensorboard --logdir folder` shows, by name of the run."""
    runs = EventMultiplexer().AddRunsFromDirectory(str(folder)).Reload()
    context = Context(TBContext(data_provider=MultiplexerDataProvider(runs, str(folder))))
    asked = RequestContext()
    known = context.hparams_metadata(asked, "")
    columns = context.experiment_from_metadata(asked, "", True, known, [])
    request = api_pb2.ListSessionGroupsRequest(
        start_index=0, slice_size=1000, allowed_statuses=[api_pb2.STATUS_SUCCESS], include_metrics=True
    )
    request.col_params.extend(_columns(columns))
    groups = Handler(asked, context, "", request).run().session_groups
    return {
        session.name: Row(
            {name: getattr(value, value.WhichOneof("kind")) for name, value in group.hparams.items()},
            {metric.name.tag: metric.value for metric in session.metric_values},
            api_pb2.Status.Name(session.status),
        )
        for group in groups
        for session in group.sessions
    }


def _columns(experiment: Any) -> Iterator[Any]:
    for info in experiment.hparam_infos:
        yield api_pb2.ColParams(hparam=info.name)
    for info in experiment.metric_infos:
        yield api_pb2.ColParams(metric=info.name)
