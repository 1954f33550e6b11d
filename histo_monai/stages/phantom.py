"""Stage `phantom`: the simulated cohort, in the official layout of its dataset."""

from __future__ import annotations

import dataclasses
import logging

from histo_monai import artifacts
from histo_monai.datasets.registry import DATASETS
from histo_monai.environment import num_cpus
from histo_monai.params import load_params
from histo_monai.phantom import CohortSize, write_cohort
from histo_monai.provenance import made_from, write_metrics
from histo_monai.settings.registry import loaded
from histo_monai.storage import whole_folder

_LOG = logging.getLogger(__name__)


def run() -> None:
    """Write data/phantom/<dataset> for the dataset and the corpus of params.yaml; nothing where the source is raw."""
    params = load_params(artifacts.PARAMS)
    with whole_folder(artifacts.PHANTOM) as folder:
        if params.source == "raw":
            _LOG.info("source is raw: nothing to simulate")
            return
        for name in sorted({params.dataset, params.corpus}):
            cohort = loaded(DATASETS[name].phantom)
            size = CohortSize(**dataclasses.asdict(params.phantom))
            write_cohort(folder / name, cohort, size, num_cpus())
        write_metrics(folder, {}, made_from(params))
