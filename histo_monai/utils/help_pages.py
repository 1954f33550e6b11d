"""Section of the documents that explains an error, found by the module that raised it."""

from __future__ import annotations

import re
import traceback

PAGES = {
    "data.decoding": "pipeline.md#the-machine",
    "data.features": "features.md",
    "data.index": "files.md#index",
    "data.leakage": "audit.md",
    "data.loaders": "pipeline.md#the-machine",
    "data.readers.breastpathq": "datasets.md#breastpathq",
    "data.readers.camelyon16": "datasets.md#camelyon16",
    "data.readers.coordinates": "own_slides.md#coordinates",
    "data.readers.kather": "datasets.md#kather",
    "data.readers.own": "own_slides.md",
    "data.readers.own.regions": "own_slides.md#annotations",
    "data.readers.own.slides": "own_slides.md#slidescsv",
    "data.readers.shared": "datasets.md",
    "data.simulated": "phantom.md",
    "data.tables": "files.md",
    "evaluation": "comparison.md",
    "evaluation.conformal": "whole_slides.md#cells-without-a-class",
    "evaluation.recommendation": "comparison.md#the-recommended-model",
    "finetuning": "params.md#fine-tuning",
    "finetuning.heads": "features.md#heads",
    "models": "encoders.md",
    "models.batchnorm": "encoders.md#batch-norm-statistics-of-given-weights",
    "models.checkpoint": "trust.md#integrity-checks",
    "models.description": "trust.md#integrity-checks",
    "models.weights": "encoders.md#weights",
    "pipeline.doctor": "pipeline.md#the-machine",
    "pipeline.environment": "pipeline.md#the-machine",
    "pipeline.experiments": "sweeps.md",
    "pipeline.params": "params.md",
    "pipeline.provenance": "trust.md#integrity-checks",
    "pipeline.stored_features": "features.md",
    "pipeline.suggestions": "annotate_next.md",
    "pretraining": "params.md#pretraining",
    "reports": "report.md",
    "reports.labeling": "annotate_next.md#a-page-to-label-on",
    "reports.maps": "whole_slides.md#maps",
    "semisupervised": "students.md",
    "slides": "limits.md#data",
    "slides.annotations": "own_slides.md#annotations",
    "slides.resolution": "own_slides.md#slidescsv",
    "slides.sampling": "params.md#slides-for-pretraining",
    "slides.tissue": "own_slides.md#artefacts",
    "training": "pipeline.md#the-machine",
    "transforms": "params.md#students",
    "utils.process": "pipeline.md#the-machine",
    "utils.process.cluster": "cluster.md#slides-dask",
    "utils.settings": "params.md",
    "utils.settings.own_methods": "own_methods.md",
    "wsi.api": "api.md",
    "wsi.diagnosis": "whole_slides.md#diagnosis",
    "wsi.export": "models.md",
    "wsi.export.dicom": "whole_slides.md#maps-in-dicom",
    "wsi.heatmaps": "whole_slides.md#maps",
    "wsi.inference": "whole_slides.md#maps",
    "wsi.mil": "slide_labels.md#mil",
    "wsi.suggestion": "annotate_next.md#how-regions-are-selected",
    "wsi.typical": "annotate_next.md#first-labels-before-there-is-a-model",
}
"""Package or module below histo_monai -> section of docs/; a longer name wins."""
_FRAME = re.compile(r'File "[^"]*\bhisto_monai/([\w/]+)\.py"')


def page_of(error: Exception, command: str) -> str:
    """Section of docs/ that explains an error, as `docs/own_slides.md#annotations`.

    It is that of the innermost module of the package that has one, also in a worker process. Modules that serve many
    callers, such as readers of CSV values, have none. Where no module has one, it is the command's.
    """
    text = str(error) if "Traceback" in str(error) else ""
    text += str(error.__cause__) if type(error.__cause__).__name__ == "_RemoteTraceback" else ""
    frames = _FRAME.findall(text or "".join(traceback.format_tb(error.__traceback__)))
    pages = (page_of_module(frame.replace("/", ".")) for frame in reversed(frames))
    return f"docs/{next(filter(None, pages), f'commands.md#{command}')}"


def page_of_module(module: str) -> str | None:
    """Section of a module below histo_monai; None: it has no section of its own."""
    parts = module.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((PAGES[name] for name in names if name in PAGES), None)
