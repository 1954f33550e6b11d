"""Stage `phantom`: simulated slides in the official layout of their dataset."""

from __future__ import annotations

import dataclasses
import logging

from histo_monai.data.readers.registry import DATASETS
from histo_monai.data.simulated import SimulatedSize, write_simulated
from histo_monai.pipeline import paths
from histo_monai.pipeline.environment import num_cpus
from histo_monai.pipeline.params import load_params
from histo_monai.pipeline.provenance import made_from, write_metrics
from histo_monai.utils.settings.registry import loaded
from histo_monai.utils.storage import whole_folder

_LOG = logging.getLogger(__name__)


def run() -> None:
    """Write data/phantom/<dataset> for dataset and pretraining dataset; nothing if source is raw."""
    params = load_params(paths.PARAMS)
    with whole_folder(paths.PHANTOM) as folder:
        if params.source == "raw":
            _LOG.info("phantom: slides=0, source is raw")
            return
        for name in sorted({params.dataset, params.pretraining_dataset}):
            simulated = loaded(DATASETS[name].phantom)
            size = SimulatedSize(**dataclasses.asdict(params.phantom))
            write_simulated(folder / name, simulated, size, num_cpus())
        write_metrics(folder, {}, made_from(params))
