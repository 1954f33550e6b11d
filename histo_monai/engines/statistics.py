"""Batch-norm statistics of a trained model, from patches as they will be predicted (Wu & Johnson 2021)."""

from __future__ import annotations

from torch.optim.swa_utils import update_bn

from histo_monai.engines.device import precision, to_device
from histo_monai.engines.prediction import single_view
from histo_monai.engines.task import Task
from histo_monai.loading.labeled import LabeledLoader
from histo_monai.networks.task_model import TaskModel


def take_statistics(model: TaskModel, task: Task, patches: LabeledLoader) -> None:
    """Replace the statistics of all batch-norms by those of patches that are not augmented; weights stay.

    Those that training leaves are of augmented and mixed images, under weights that were moving.

    Args:
        model: moved to the task's device; one without batch-norms is left as it is.
        task: the size of its patches, and where.
        patches: shuffled, so that a batch holds many slides: variances are means of the batches' own. Labels are not
            looked at.
    """
    to_device(model, task.device)
    with precision(task.device):
        update_bn((single_view(batch, task.patch_px, task.device) for batch, _ in patches.loader), model)
