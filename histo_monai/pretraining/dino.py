"""Self-distillation without labels, DINO (Caron et al. 2021)."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from histo_monai.models.average import follow
from histo_monai.models.encoder import Encoder
from histo_monai.models.layers import at_full_precision
from histo_monai.models.start import EncoderStart
from histo_monai.pretraining.contrastive_views import NUM_VALIDATION_VIEWS, ContrastiveViews, with_numbers
from histo_monai.pretraining.protocol import Task
from histo_monai.pretraining.settings import DINOSettings, PretextSettings
from histo_monai.training.pictures.matches import mosaic_of_matches
from histo_monai.training.schedule import parameter_groups
from histo_monai.transforms.augmentation import render
from histo_monai.transforms.parameters import ViewParameters
from histo_monai.utils.randomness import Step, derive_seed

NUM_GLOBAL = 2
"""Large crops of a patch; the teacher sees them alone."""
GLOBAL_AREA, LOCAL_AREA = (0.4, 1.0), (0.1, 0.4)
"""Fractions of the patch's area. Local crops: the paper's begin at 0.05, of images of 224 px."""
HIDDEN, BOTTLENECK = 2048, 256
"""Widths of the projection head (Caron et al. 2021, appendix C)."""


class Outputs(NamedTuple):
    """Logits over K prototypes.

    Attributes:
        student: of all V views, global views first, (n, V, K).
        teacher: of the global views, (n, 2, K).
    """

    student: torch.Tensor
    teacher: torch.Tensor


class PrototypeHead(nn.Module):
    """Logits from features: D - 2048 - 2048 - 256, length 1, cosines to K prototypes.

    Cosines are a linear layer without bias, whose weights are normalized and have the constant norm 1.

    Input  (N, D), of any floating type
    Output (N, K), -1..1
    """

    def __init__(self, num_features: int, num_prototypes: int) -> None:
        super().__init__()
        widths = (num_features, HIDDEN, HIDDEN, BOTTLENECK)
        layers: list[nn.Module] = []
        for width, following in itertools.pairwise(widths):
            layers += [nn.Linear(width, following), nn.GELU()]
        self.mlp = nn.Sequential(*layers[:-1])
        for layer in self.mlp:
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)
        self.prototypes = nn.Parameter(torch.randn(num_prototypes, BOTTLENECK) / BOTTLENECK**0.5)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Cosines of projected features and prototypes."""
        return F.linear(F.normalize(self.mlp(features), dim=1), F.normalize(self.prototypes, dim=1))


class Branch(nn.Module):
    """Encoder and projection head.

    Input  (N, 3, P, P), float32, 0..1
    Output (N, K), float32 under autocast too
    """

    def __init__(self, encoder: Encoder, num_prototypes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = PrototypeHead(encoder.num_features, num_prototypes)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """Logits of a batch of patches."""
        return at_full_precision(self.head, self.encoder(patches))


class SelfDistillation(nn.Module):
    """Student, teacher that follows it, and center of the teacher's logits.

    The teacher stays in evaluation mode; its batch-norm statistics follow the student's, as in `MomentumContrast`.
    """

    center: torch.Tensor
    """Shape (K,): running mean of the teacher's logits."""

    def __init__(self, encoder: Encoder, num_prototypes: int) -> None:
        super().__init__()
        self.student = Branch(encoder, num_prototypes)
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.register_buffer("center", torch.zeros(num_prototypes))
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Set the mode; of the teacher's layers, batch-norms alone."""
        super().train(mode)
        self.teacher.eval()
        for module in self.teacher.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.train(mode)
        return self

    def forward(self, views: torch.Tensor) -> Outputs:
        """Logits of the student for all views, and of the teacher for the global ones.

        Args:
            views: Shape (n, V, 3, P, P), float32, 0..1; two global views first.
        """
        n, num_views = views.shape[:2]
        with torch.no_grad():
            teacher = self.teacher(views[:, :NUM_GLOBAL].flatten(0, 1)).unflatten(0, (n, NUM_GLOBAL))
        return Outputs(self.student(views.flatten(0, 1)).unflatten(0, (n, num_views)), teacher)

    @torch.no_grad()
    def recenter(self, teacher: torch.Tensor, momentum: float) -> None:
        """center <- momentum center + (1 - momentum) mean, over the logits of all processes, (n, 2, K) each."""
        self.center.lerp_(mean_of_all(teacher).to(self.center.dtype), 1 - momentum)


class DINO:
    """Cross-entropy of a student's outputs against a momentum teacher's, over different views of a patch.

    With `adjacent`, the second global view is of the adjacent patch, so features ignore what changes over one patch.
    Only the finest resolution is read: views of other resolutions would teach that µm/px is without meaning. Teacher
    momentum, teacher temperature and weight decay are constant. In Caron et al. they change over 100 epochs, the
    gradient is clipped, and the last layer rests in the first epoch. Local crops have the side of the patch, so that
    any encoder takes them; they cost as much as global ones. The saved weights are the teacher's, the last ones.

    Args:
        augmentation_prob: unused; every view has all operations of `ContrastiveViews`.

    Raises:
        ValueError: there is no resolution.
    """

    Settings: ClassVar[type[PretextSettings]] = DINOSettings
    MEASURES: ClassVar[tuple[str, ...]] = ("loss", "entropy", "information")
    KEEPS_BEST: ClassVar[bool] = False

    def __init__(
        self,
        *,
        start: EncoderStart,
        patch_px: int,
        mpps: tuple[float, ...],
        augmentation_prob: float,
        settings: DINOSettings,
    ) -> None:
        if not mpps:
            raise ValueError("self-distillation reads the finest resolution, got none")
        self._network = SelfDistillation(start.build(patch_px).encoder, settings.num_prototypes)
        self.epochs = settings.epochs
        self.batch_size = settings.batch_size
        self.patch_px = patch_px
        self.mpps: tuple[float, ...] = mpps[:1]
        self._settings = settings
        self._encoder_lr = settings.encoder_lr(has_weights=start.weights is not None)
        self._global, self._local = (
            ContrastiveViews(patch_px, crop_area=area, hue=0.1) for area in (GLOBAL_AREA, LOCAL_AREA)
        )
        self._global.set_random_state(derive_seed(0, "validation views"))
        self._validation_views = self._global.randomize_views(NUM_GLOBAL, NUM_VALIDATION_VIEWS, 1)

    @property
    def network(self) -> SelfDistillation:
        """Student, teacher and center."""
        return self._network

    def training_task(self, patches: torch.Tensor, rows: torch.Tensor, step: Step) -> Task:
        """Two random global views of each patch, and random local ones."""
        own_rows, total = step.process_rows(len(patches))
        self._global.set_random_state(step.derive_seed("global views"))
        self._local.set_random_state(step.derive_seed("local views"))
        parameters = [
            *self._global.randomize_views(NUM_GLOBAL, total, 1),
            *self._local.randomize_views(self._settings.num_local, total, 1),
        ]
        return self._task(patches, rows, [view.rows(own_rows) for view in parameters])

    def validation_task(self, patches: torch.Tensor, rows: torch.Tensor) -> Task:
        """Two fixed global views of each patch; row r uses parameters r modulo 64."""
        numbers = rows.cpu() % NUM_VALIDATION_VIEWS
        return self._task(patches, rows, [with_numbers(view, numbers) for view in self._validation_views])

    def _task(self, patches: torch.Tensor, rows: torch.Tensor, parameters: list[ViewParameters]) -> Task:
        if not self._settings.adjacent:
            return Task((torch.cat(render(patches[:, :1], parameters, self.patch_px), dim=1),), rows)
        first, second, *local = parameters
        own, *crops = render(patches[:, :1], [first, *local], self.patch_px)
        (beside,) = render(patches[:, 1:2], [second], self.patch_px)
        return Task((torch.cat([own, beside, *crops], dim=1),), rows)

    def measure(self, outputs: Outputs, task: Task) -> dict[str, torch.Tensor]:
        """Loss; and, in nats, whether outputs collapse, on the teacher's targets of the batch.

        "entropy" is the entropy of the mean target: 0 where one prototype takes all patches. "information" is the mean
        divergence of targets from their mean: 0 where all patches have equal targets, at most the entropy.
        """
        settings = self._settings
        targets = targets_of(outputs.teacher, self.network.center, settings.teacher_temperature)
        mean = mean_of_all(targets)
        surprise = -torch.xlogy(targets, mean).sum(dim=-1).mean(dim=1)
        return {
            "loss": distillation_loss(outputs.student, targets, settings.student_temperature),
            "entropy": surprise,
            "information": surprise + torch.xlogy(targets, targets).sum(dim=-1).mean(dim=1),
        }

    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """AdamW, over the student."""
        settings, encoder = self._settings, self.network.student.encoder
        groups = parameter_groups(network, encoder, lr=settings.lr, backbone_lr=self._encoder_lr)
        return torch.optim.AdamW(groups, betas=(0.9, 0.999), weight_decay=settings.weight_decay)

    def after_step(self, outputs: Outputs, task: Task) -> None:
        """The teacher follows; the center moves towards the mean of the teacher's logits."""
        follow(self.network.teacher, self.network.student, self._settings.teacher_momentum)
        self.network.recenter(outputs.teacher, self._settings.center_momentum)

    def encoder_state(self) -> dict[str, torch.Tensor]:
        """Backbone of the teacher; fine-tuning drops the head."""
        return {f"encoder.{name}": value for name, value in self.network.teacher.encoder.state_dict().items()}

    def description(self) -> Mapping[str, Any]:
        """Architecture, resolution and normalization of the encoder."""
        encoder = self.network.teacher.encoder
        return encoder.description(
            architecture=f"{encoder.name} trunk", head="linear", patch_px=self.patch_px, mpps=self.mpps
        )

    def picture(self, outputs: Outputs, task: Task) -> np.ndarray:
        """Image of a view of each patch, its other view, and the nearest other view by the teacher's targets."""
        targets = targets_of(outputs.teacher, self.network.center, self._settings.teacher_temperature)
        first, second = F.normalize(targets.float(), dim=-1).unbind(dim=1)
        views = task.inputs[0].float().cpu().numpy()
        similarities = (first @ second.T).cpu().numpy()
        return mosaic_of_matches(views[:, 0], views[:, 1], similarities, names=("view", "other view"))


def targets_of(teacher: torch.Tensor, center: torch.Tensor, temperature: float) -> torch.Tensor:
    """Centered and sharpened distributions over the prototypes, (..., K) -> (..., K)."""
    return torch.softmax((teacher - center) / temperature, dim=-1)


def distillation_loss(student: torch.Tensor, targets: torch.Tensor, temperature: float) -> torch.Tensor:
    """Mean cross-entropy over all pairs of a target and a different view (Caron et al. 2021, equation 3).

    Args:
        student: logits of V views, Shape (n, V, K); the first two belong to the targets.
        targets: Shape (n, 2, K).

    Returns:
        Shape (n,).
    """
    log_p = torch.log_softmax(student / temperature, dim=-1)
    pairs = -targets @ log_p.mT
    different = ~torch.eye(*pairs.shape[1:], dtype=torch.bool, device=pairs.device)
    return pairs.masked_fill(~different, 0).sum(dim=(1, 2)) / different.sum()


@torch.no_grad()
def mean_of_all(rows: torch.Tensor) -> torch.Tensor:
    """Mean over samples and views of all processes, (n, 2, K) -> (K,); n may differ between processes."""
    totals = F.pad(rows.sum(dim=(0, 1)), (0, 1), value=len(rows) * rows.shape[1])
    if dist.is_initialized():
        dist.all_reduce(totals)
    return totals[:-1] / totals[-1]
