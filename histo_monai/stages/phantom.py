"""Stage `phantom`: the simulated cohort, in the official layout of its dataset."""

from __future__ import annotations

import logging

from histo_monai import artifacts
from histo_monai.environment import read_environment
from histo_monai.params import load_params
from histo_monai.phantom import write_cohort
from histo_monai.provenance import made_from, write_metrics
from histo_monai.storage import whole_folder

_LOG = logging.getLogger(__name__)


def run() -> None:
    """Write data/phantom/<dataset> for the dataset and the corpus of params.yaml; nothing where the source is raw."""
    params = load_params(artifacts.PARAMS)
    section = params.phantom
    with whole_folder(artifacts.PHANTOM) as folder:
        if params.source == "raw":
            _LOG.info("source is raw: nothing to simulate")
            return
        for dataset in sorted({params.dataset, params.corpus}):
            write_cohort(
                folder / dataset,
                dataset=dataset,  # type: ignore[arg-type]  # params refuse 'own' here
                seed=section.seed,
                num_slides=section.num_slides,
                num_test_slides=section.num_test_slides,
                num_patches=section.num_patches,
                slide_side_px=section.slide_side_px,
                slide_mpp=section.slide_mpp,
                processes=read_environment().cpus,
            )
        write_metrics(folder, {}, made_from(params))
