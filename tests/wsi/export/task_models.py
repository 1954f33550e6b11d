"""Files of small models."""

from __future__ import annotations

from pathlib import Path

import torch

from histo_monai.models.checkpoint import save_model
from histo_monai.models.encoder import build_encoder
from histo_monai.models.task_model import TaskModel

SIDE, MPP = 64, 1.0
TASKS = {"two": ["normal", "tumor"], "three": ["fat", "tumor", "glass"], "score": None}


def save_task_model(
    path: Path,
    classes: list[str] | None,
    head: str = "linear",
    name: str = "resnet18",
    *,
    mpp: float = MPP,
    seed: int = 3,
) -> Path:
    """A model whose outputs differ from patch to patch: batch-norms know the patches' statistics.

    That of a score keeps the first stage of its encoder alone, as fine-tuning may choose.
    """
    torch.manual_seed(seed)
    encoder = build_encoder(name, SIDE)
    if classes is None:
        encoder.end_after(1)
    model = TaskModel(encoder, head, len(classes) if classes else 1)
    model.train()
    with torch.no_grad():
        for _ in range(4):
            model(torch.rand(16, 3, SIDE, SIDE))
        model.head.linear.weight.mul_(8 if classes else 0.5)
        model.head.linear.bias.add_(0 if classes else 0.5)  # scores within 0..1, where nothing is cut
    about = {
        **encoder.description(architecture="trunk", head=head, patch_px=SIDE, mpps=[1.0, 2.0, 4.0]),
        **{"kind": "task model", "method": "rsp", "source": "raw", "corpus": "own", "dataset": "own"},
        **{"classes": classes, "mpp": mpp, "stage": "finetune", "alpha": 1.0},
        "metrics": {"validation_loss": 0.5, "num_labeled": 9},
    }
    save_model(path, model.state_dict(), about)
    return path
