"""Encoders as CUDA graphs: what is captured, and when; on a GPU also that nothing else comes of it."""

from __future__ import annotations

import copy
import threading
from contextlib import nullcontext
from unittest.mock import MagicMock

import pytest
import torch
from ignite.engine import Engine, State

from histo_monai.models.batchnorm import statistics_of_the_batch
from histo_monai.models.encoder import Encoder, build_encoder
from histo_monai.models.task_model import TaskModel
from histo_monai.pretraining.trainer import placed, training_step
from histo_monai.semisupervised import METHODS
from histo_monai.semisupervised.teaching.trainer import StudentStep
from histo_monai.training import graphs
from histo_monai.training.device import to_device
from histo_monai.training.graphs import EncoderGraphs
from histo_monai.training.schedule import Schedule
from histo_monai.utils.randomness import Step
from tests.devices import ComputeIn
from tests.training.test_steps_on_devices import SIDE, TRAINED, build_pretext, build_student

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
GPU = torch.device("cuda")  # where encoders are asked for as graphs; the tests that say so need none

ROUNDING = 0.1
"""Of the way that the weights go in so many steps."""


class _Captures(list[tuple[int, ...]]):
    """Shapes that were captured, and of each pass of a graph that ran since."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[tuple[int, ...]] = []

    def __call__(self, encoder: Encoder, patches: torch.Tensor) -> graphs.Pass:
        self.append(tuple(patches.shape))
        encoder(patches)  # as what prepares a capture does: it moves the statistics of batch-norms

        def run(patches: torch.Tensor) -> torch.Tensor:
            self.runs.append(tuple(patches.shape))
            return type(encoder).forward(encoder, patches)

        return run


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> _Captures:
    found = _Captures()
    monkeypatch.setattr(graphs, "captured_pass", found)
    return found


def _model() -> TaskModel:
    torch.manual_seed(0)
    return TaskModel(build_encoder(), "linear", 2)


def _patches(num: int = 2) -> torch.Tensor:
    return torch.rand(num, 3, 32, 32, generator=torch.Generator().manual_seed(num))


def _step(model: TaskModel, asked_for: EncoderGraphs, *batches: torch.Tensor) -> list[torch.Tensor]:
    """Gradients of a pass of each batch, within one step."""
    model.zero_grad()
    with asked_for:
        outputs = [model(batch) for batch in batches]
    torch.cat(outputs).square().sum().backward()
    return [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]


def test_a_kind_of_batch_is_captured_when_it_comes_again(captures: _Captures) -> None:
    model = _model()
    asked_for = EncoderGraphs(model, GPU)
    for _ in range(4):
        _step(model, asked_for, _patches(2))
    _step(model, asked_for, _patches(3))
    assert captures == [(2, 3, 32, 32)]
    assert captures.runs == 3 * [(2, 3, 32, 32)]


def test_each_kind_has_a_graph_of_its_own(captures: _Captures) -> None:
    model = _model()
    asked_for = EncoderGraphs(model, GPU)

    def pass_of_each_kind() -> int:
        with asked_for:
            model.train()(_patches())
            with torch.no_grad():
                model(_patches())
                model.eval()(_patches())
                with statistics_of_the_batch(model):
                    model(_patches())
        return len(captures)

    assert [pass_of_each_kind() for _ in range(3)] == [0, 4, 4]
    model.encoder.requires_grad_(False)
    for _ in range(3):
        _step(model.train(), asked_for, _patches())
        assert len(captures) == 4  # enough


def test_a_graph_whose_gradients_are_still_to_come_does_not_run_again(captures: _Captures) -> None:
    model, batches = _model().eval(), (_patches(), _patches().flip(0) ** 2)
    asked_for = EncoderGraphs(model, GPU)
    expected = _step(model, EncoderGraphs(model, CPU), *batches)
    for number in range(3):
        gradients = _step(model, asked_for, *batches)
        assert len(captures.runs) == number + 1
        torch.testing.assert_close(gradients, expected)
    with asked_for:  # a pass from which nobody learns
        model(batches[0])
    _step(model, asked_for, batches[0])
    assert len(captures.runs) == 5


def test_a_capture_moves_no_statistic(captures: _Captures) -> None:
    model, plain = _model(), _model()
    asked_for, none = EncoderGraphs(model, GPU), EncoderGraphs(plain, CPU)
    for _ in range(3):
        _step(model, asked_for, _patches())
        _step(plain, none, _patches())
    assert len(captures) == 1
    for name, value in plain.state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name


def test_what_cannot_be_captured_runs_as_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(encoder: Encoder, patches: torch.Tensor) -> graphs.Pass:
        raise RuntimeError("operation not permitted when stream is capturing\nat some line")

    monkeypatch.setattr(graphs, "captured_pass", refuse)
    model = _model().eval()
    asked_for = EncoderGraphs(model, GPU)
    expected = _step(model, EncoderGraphs(model, CPU), _patches())
    for _ in range(4):
        torch.testing.assert_close(_step(model, asked_for, _patches()), expected)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "resnet18" in line
    assert line.endswith("operation not permitted when stream is capturing")


@pytest.mark.parametrize("is_learning", [True, False])
def test_a_capture_minds_its_own_thread_only(is_learning: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch does with a graph needs a GPU; here it is seen how it is asked for one."""
    modes: list[str] = []

    class Graph(nullcontext[None]):
        def __init__(self, graph: object, pool: object = None, capture_error_mode: str = "global") -> None:
            super().__init__()
            modes.append(capture_error_mode)

    def graphed(encoder: Encoder, samples: tuple[torch.Tensor, ...]) -> None:
        with torch.cuda.graph(object()):
            features = encoder(*samples)
        vars(encoder)["forward"] = lambda patches: features

    monkeypatch.setattr(torch.cuda, "graph", Graph)
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", graphed)
    for name in ("Stream", "stream", "current_stream", "CUDAGraph"):
        monkeypatch.setattr(torch.cuda, name, MagicMock())
    encoder = _model().encoder.requires_grad_(is_learning)
    features = graphs.captured_pass(encoder, _patches())(_patches())
    assert features.requires_grad == is_learning
    assert modes == ["thread_local"]
    assert torch.cuda.graph is Graph


def test_others_may_take_page_locked_memory_while_a_graph_is_captured(device: torch.device) -> None:
    """As a loader's thread does at the first batches of a training; on the CPU it takes plain memory."""
    is_over, failures = threading.Event(), list[BaseException]()

    def take() -> None:
        try:
            for number in range(10**6):
                if is_over.is_set():
                    return
                torch.empty(2**18 * (1 + number % 64), pin_memory=device.type == "cuda")
        except BaseException as error:  # of a thread: nobody else would hear of it
            failures.append(error)

    thread = threading.Thread(target=take)
    thread.start()
    try:
        model = _model().to(device)
        asked_for = EncoderGraphs(model, device)
        for _ in range(3):
            _step(model, asked_for, _patches().to(device))
            with torch.no_grad(), asked_for:
                model(_patches().to(device))
    finally:
        is_over.set()
        thread.join()
    assert not failures
    captured = asked_for._captured.get(model.encoder, {})
    assert sum(graph is not None for graph in captured.values()) == (2 if device.type == "cuda" else 0)


def test_a_copy_of_a_model_has_its_own_weights(captures: _Captures) -> None:
    model = _model()
    asked_for = EncoderGraphs(model, GPU)
    for _ in range(3):
        _step(model, asked_for, _patches())
    other = copy.deepcopy(model).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    assert other(_patches()).abs().max() > 0


def _num_steps(device: torch.device) -> int:
    """The second captures, the third has other images than the one that was captured; a rehearsal is short."""
    return 3 if device.type == "cuda" else 1


def _weights(network: torch.nn.Module) -> torch.Tensor:
    """All that learn, as one vector."""
    return torch.cat([weight.detach().double().cpu().flatten() for weight in network.parameters()])


def _trained(name: str, device: torch.device, is_graphed: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights before and after some steps."""
    torch.manual_seed(0)
    pixels = torch.randint(0, 256, (12, 3, 3, SIDE, SIDE), generator=torch.Generator().manual_seed(0))
    pixels, rows = pixels.to(torch.uint8).to(device), torch.arange(12, device=device)
    if name in METHODS:
        task, method = build_student(name, device)
        to_device(method.network, device)
        targets = torch.linspace(0, 1, 4) if name == "rankup" else torch.arange(4) % 3
        optimizer = method.optimizer(Schedule(1, "sgd", 1e-3, 0.0, ()))
        pseudo_labels = torch.full((12, task.num_outputs), 1 / task.num_outputs)
        step = StudentStep(method, task, targets, optimizer, seed=0, pseudo_labels=pseudo_labels)
        step._graphs = EncoderGraphs(method.network, device if is_graphed else CPU)
        before, engine = _weights(method.network), Engine(lambda *_: None)
        for number in range(_num_steps(device)):
            engine.state = State(epoch=1, iteration=number)
            step(engine, ((pixels[:4, :1], rows[:4]), (pixels[:, 1:2], rows)))
        return before, _weights(method.network)
    pretext = build_pretext(name)
    network = placed(pretext.network, device).train()
    optimizer = pretext.optimizer(network)
    asked_for = EncoderGraphs(network, device) if is_graphed else None
    before = _weights(network)
    for number in range(_num_steps(device)):
        task = pretext.training_task(pixels[:8, : len(pretext.mpps)], rows[:8], Step(0, 1, number))
        training_step(pretext, network, optimizer, task, device, asked_for)
    return before, _weights(network)


TAUGHT = [
    name
    for name in METHODS
    if name not in ("adabn", "spatial_neighbors") and "all" in METHODS.settings(name).finetune_modes
]


@pytest.mark.parametrize("name", [*TRAINED, *TAUGHT])
def test_a_training_by_graphs_is_the_training(
    name: str, device: torch.device, compute_in: ComputeIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute_in(torch.float32)
    num, capture = 0, graphs.captured_pass

    def counted(encoder: Encoder, patches: torch.Tensor) -> graphs.Pass:
        nonlocal num
        num += 1
        return capture(encoder, patches)

    monkeypatch.setattr(graphs, "captured_pass", counted)
    (_, by_graphs), (before, plain) = (_trained(name, device, is_graphed) for is_graphed in (True, False))
    assert (num > 0) == (device.type == "cuda")
    assert (by_graphs - plain).norm() < ROUNDING * (plain - before).norm()
