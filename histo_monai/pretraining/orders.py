"""Order of three concentric patches: network, validation and untrained baselines (paper, section 3.1)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from histo_monai.models.encoder import Encoder
from histo_monai.models.heads.pairs import OrderHead, PairMLP
from histo_monai.models.start import EncoderStart
from histo_monai.pretraining.protocol import Task
from histo_monai.training.pictures.patches import RIGHT, WRONG, Sheet
from histo_monai.transforms.fixed_views import unaugmented_view
from histo_monai.utils.randomness import Step
from histo_monai.utils.transfer import sent

ORDERS = tuple(itertools.permutations(range(3)))
"""Class k: place i of the sequence holds resolution ORDERS[k][i]; 0 is the finest."""


class RSPNetwork(nn.Module):
    """Backbone, pair MLP, and head over the six orders.

    Patches are ordered after the backbone. The backbone treats each patch alone, and batch-norm ignores order. So the
    function is unchanged, and all six orders of a triple cost one pass of the backbone.
    """

    places: torch.Tensor
    """`ORDERS`, Shape (6, 3), on the network's device."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.pair_mlp = PairMLP(encoder.num_features)
        self.head = OrderHead()
        self.register_buffer("places", torch.tensor(ORDERS), persistent=False)

    def forward(self, patches: torch.Tensor, orders: torch.Tensor) -> torch.Tensor:
        """Logits over the six classes, for K presented orders of each triple.

        Args:
            patches: Shape (n, 3, 3, P, P), float32, 0..1; axis 1 is resolution, finest first.
            orders: Shape (n, K), int64, classes of `ORDERS`.

        Returns:
            Shape (n, K, 6).
        """
        return self.logits(self.features(patches), orders)

    def features(self, patches: torch.Tensor) -> torch.Tensor:
        """(n, 3, 3, P, P) -> backbone features (n, 3, D)."""
        features: torch.Tensor = self.encoder(patches.flatten(0, 1)).unflatten(0, (len(patches), 3))
        return features

    def logits(self, features: torch.Tensor, orders: torch.Tensor) -> torch.Tensor:
        """(n, 3, D) and (n, K) -> (n, K, 6)."""
        n, k = orders.shape
        places = self.places[orders]
        shown = (
            features.unsqueeze(1)
            .expand(-1, k, -1, -1)
            .gather(2, places.unsqueeze(-1).expand(-1, -1, -1, features.shape[-1]))
        )
        return self.head(shown.flatten(0, 1), self.pair_mlp).unflatten(0, (n, k))


class OrderPrediction:
    """Network, validation and output of resolution sequence prediction, without training.

    Validation shows each triple in all six orders.

    Args:
        start: encoder and optional weights; a pair MLP in the file is loaded, too.
        mpps: the three resolutions, µm/px, finest first.

    Raises:
        ValueError: there are not three resolutions.
    """

    MEASURES: ClassVar[tuple[str, ...]] = ("loss", "accuracy", "by_sharpness", "by_contrast")
    KEEPS_BEST: ClassVar[bool] = True

    def __init__(self, *, start: EncoderStart, patch_px: int, mpps: tuple[float, ...]) -> None:
        if len(mpps) != 3:
            raise ValueError(
                f"resolution sequence prediction orders three resolutions, got {len(mpps)}: {mpps}"
            )
        started = start.build(patch_px)
        self._network = RSPNetwork(started.encoder)
        self.brings_pair_mlp = started.pair_mlp is not None
        if started.pair_mlp is not None:
            self._network.pair_mlp.load_state_dict(started.pair_mlp)
        self.patch_px = patch_px
        self.mpps: tuple[float, ...] = mpps

    @property
    def network(self) -> RSPNetwork:
        """Backbone, pair MLP and the head over the orders."""
        return self._network

    def validation_task(self, patches: torch.Tensor, rows: torch.Tensor) -> Task:
        """All six orders of every triple, unaugmented."""
        orders = torch.arange(len(ORDERS), device=patches.device).expand(len(patches), -1)
        return Task((unaugmented_view(patches, self.patch_px), orders), orders)

    def measure(self, outputs: torch.Tensor, task: Task) -> dict[str, torch.Tensor]:
        """Cross-entropy and accuracy, means over the presented orders; and `ordered_by_one_number`."""
        loss = F.cross_entropy(outputs.float().flatten(0, 1), task.targets.flatten(), reduction="none")
        right = (outputs.argmax(dim=-1) == task.targets).float()
        return {
            "loss": loss.unflatten(0, task.targets.shape).mean(dim=1),
            "accuracy": right.mean(dim=1),
            **ordered_by_one_number(task.inputs[0]),
        }

    def after_step(self, outputs: torch.Tensor, task: Task) -> None:
        """Do nothing after a step."""

    def encoder_state(self) -> dict[str, torch.Tensor]:
        """Backbone and pair MLP; fine-tuning drops the head over the orders."""
        parts = {"encoder": self.network.encoder, "pair_mlp": self.network.pair_mlp}
        return {
            f"{part}.{name}": value
            for part, module in parts.items()
            for name, value in module.state_dict().items()
        }

    def description(self) -> Mapping[str, Any]:
        """Architecture, resolutions and normalization of the encoder."""
        encoder = self.network.encoder
        return encoder.description(
            architecture=f"{encoder.name} trunk, pair MLP {2 * encoder.num_features}-512-256",
            head="pair",
            patch_px=self.patch_px,
            mpps=self.mpps,
        )

    def picture(self, outputs: torch.Tensor, task: Task) -> np.ndarray:
        """Image of presented triples, with true and predicted orders."""
        patches, orders = task.inputs
        one = torch.arange(len(patches), device=orders.device) % orders.shape[1]
        rows = torch.arange(len(patches), device=orders.device)
        return mosaic_of_triples(
            patches.cpu().numpy(),
            [ORDERS[k] for k in orders[rows, one].tolist()],
            [ORDERS[k] for k in outputs[rows, one].argmax(dim=-1).tolist()],
            self.mpps,
        )


class Untrained(OrderPrediction):
    """RSP's network without training: it reads no slide."""

    epochs = 0
    batch_size = 64

    def training_task(self, patches: torch.Tensor, rows: torch.Tensor, step: Step) -> Task:
        """The validation task; never called, as there is no epoch."""
        return self.validation_task(patches, rows)

    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """SGD with learning rate 0."""
        return torch.optim.SGD(network.parameters(), lr=0.0)


_LAPLACIAN = ((0.0, 1.0, 0.0), (1.0, -4.0, 1.0), (0.0, 1.0, 0.0))


def contrast(patches: torch.Tensor) -> torch.Tensor:
    """Standard deviation of gray, (..., 3, P, P) -> (...). Gray is the mean of R, G and B."""
    return patches.float().mean(dim=-3).std(dim=(-2, -1), correction=0)


def sharpness(patches: torch.Tensor) -> torch.Tensor:
    """Mean absolute Laplacian of gray inside the edge, divided by `contrast`; (..., 3, P, P) -> (...)."""
    gray = patches.float().mean(dim=-3)
    kernel = sent(torch.tensor(_LAPLACIAN), patches.device).expand(1, 1, -1, -1)
    detail = F.conv2d(gray.flatten(0, -3).unsqueeze(1), kernel).abs().mean(dim=(1, 2, 3))
    return detail.unflatten(0, patches.shape[:-3]) / contrast(patches).clamp(min=1e-6)


def ordered_by_one_number(triples: torch.Tensor) -> dict[str, torch.Tensor]:
    """Whether sharpness rises, or contrast falls, over a triple from fine to coarse.

    Baselines of the pretext task: where one number orders the triples, the task teaches little about tissue.

    Args:
        triples: Shape (n, 3, 3, P, P); axis 1 is resolution, finest first.

    Returns:
        "by_sharpness" and "by_contrast", (n,) each: 1 where the number alone orders the triple, else 0.
    """
    rises = {"by_sharpness": sharpness(triples), "by_contrast": -contrast(triples)}
    return {name: (number.diff(dim=1) > 0).all(dim=1).float() for name, number in rises.items()}


def mosaic_of_triples(
    patches: np.ndarray,
    shown: Sequence[tuple[int, ...]],
    predicted: Sequence[tuple[int, ...]],
    mpps: Sequence[float],
    num: int = 8,
    columns: int = 2,
) -> np.ndarray:
    """Image of triples in presented order, with true and predicted resolutions.

    Args:
        patches: Shape (n, 3, 3, P, P), float32, 0..1, finest first.
        shown: per triple, the resolution (0 finest) at each place.
        predicted: predicted resolution at each place; green frame: right, red: wrong.

    Returns:
        Shape (H, W, 3), uint8.
    """
    num = min(num, len(patches))
    sheet = Sheet(-(-num // columns), columns * 3, side_in=1.4)
    for i in range(num):
        right = tuple(shown[i]) == tuple(predicted[i])
        row, column = divmod(i, columns)
        for place, scale in enumerate(shown[i]):
            true, answer = mpps[scale], mpps[predicted[i][place]]
            sheet.show(
                (row, 3 * column + place),
                patches[i, scale],
                f"true {true:g}, predicted {answer:g} µm/px",
                color="black" if true == answer else WRONG,
                frame=RIGHT if right else WRONG,
            )
    return sheet.pixels()
