"""Origin of a map: slide, models and settings. Maps with equal origins have equal scores and are not computed again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from histo_monai.data.features.tables import images_sha256
from histo_monai.slides import SlideError, open_slide
from histo_monai.utils.process.precision import computes_in_bfloat16
from histo_monai.utils.storage import (
    RECORD_SEAL,
    FileIdentity,
    InputFileError,
    file_sha256,
    identify_slide,
    opened,
    read_json,
)
from histo_monai.utils.storage.shapes import COUNT, POSITIVE, SHA256

if TYPE_CHECKING:
    import torch

PRECISION = "precision"
"""Setting name of the precision; float32 if missing."""

OUTLINES = "outlines"
"""Setting name of the digest of the user's outlines of tissue and artefacts; without a file, missing."""

MADE_FROM = "made_from"
"""Key of the origin in the json of a map."""

CSV_SHA256 = "csv_sha256"
"""Key of the digest of the csv in the json of a map."""

ORIGIN_SHAPE = {
    "slide_bytes": COUNT,
    "slide_sample_sha256": str,
    "slide_mpp": (POSITIVE, None),
    "model_sha256": {str: str},
    "classes": [str],
    "settings": {str: (float, str)},
    "bounds_yx?": [int],
}
"""Shape of `Origin.as_dict`."""


@dataclass(frozen=True)
class Origin:
    """All that determines the scores of a slide.

    A slide is identified by its content: copies and moved files are equal, another file with its name is not.

    Attributes:
        slide_bytes: size of the slide's files.
        slide_sample_sha256: digest of samples (`storage.FileIdentity`).
        slide_mpp: µm per level-0 pixel, from the file or given; None of images.
        model_sha256: column of the csv -> digest of the model file.
        classes: mapped classes; empty for a score.
        settings: map settings by name; `PRECISION` only if not float32.
        bounds_yx: corner of the slide's bounds (`slides.Slide`); missing values count as (0, 0).
    """

    slide_bytes: int
    slide_sample_sha256: str
    slide_mpp: float | None
    model_sha256: Mapping[str, str]
    classes: tuple[str, ...]
    settings: Mapping[str, float | str]
    bounds_yx: tuple[int, int] = (0, 0)

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {**asdict(self), "classes": list(self.classes), "bounds_yx": list(self.bounds_yx)}

    def differences(self, before: Mapping[str, Any]) -> list[str]:
        """Differences in words between this origin and an earlier one (`as_dict`)."""
        now = self.as_dict()
        differing = []
        if any(before.get(name) != now[name] for name in ("slide_bytes", "slide_sample_sha256")):
            differing.append("the slide's content differs")
        if before.get("slide_mpp") != self.slide_mpp:
            differing.append(f"the slide's µm/px was {before.get('slide_mpp')}, now {self.slide_mpp}")
        if before.get("bounds_yx", [0, 0]) != now["bounds_yx"]:
            differing.append(f"the slide's bounds begin at y, x = {now['bounds_yx']}, not stated in the map")
        return differing + self.other_look(before)

    def other_look(self, before: Mapping[str, Any]) -> list[str]:
        """Differences in words without the slide's."""
        settings = before.get("settings")
        settings = {PRECISION: "float32", **(settings if isinstance(settings, dict) else {})}
        differing = []
        if before.get("model_sha256") != self.model_sha256:
            differing.append("the model differs")
        if before.get("classes") != list(self.classes):
            differing.append(f"the classes were {before.get('classes')}, now {list(self.classes)}")
        now = {PRECISION: "float32", **self.settings}
        return differing + [
            f"{name} was {settings.get(name)}, now {now.get(name)}"
            for name in {**now, **settings}  # a setting at its default may have no name
            if settings.get(name) != now.get(name)
        ]


def numeric_settings(device: torch.device) -> dict[str, str]:
    """Settings with effect on numbers on this device, other than float32, for `Origin.settings`."""
    return {PRECISION: "bfloat16"} if computes_in_bfloat16(device) else {}


class Origins:
    """Origins of all maps of one call; each model file is read once."""

    def __init__(self, classes: tuple[str, ...], settings: Mapping[str, float | str]) -> None:
        self._classes, self._settings = classes, settings
        self._sha256_of: dict[Path, str] = {}

    def of(self, path: Path, mpp: float | None, models: Mapping[str, Path], outlines: str = "") -> Origin:
        """Current origin of a slide's map.

        Raises:
            SlideError: the slide cannot be opened.
            OSError: a model cannot be read.
        """
        with open_slide(path, mpp) as slide:
            mpp, bounds_yx = slide.mpp, slide.bounds_yx
        identity = slide_identity(path)
        sha256 = self._digests(models)
        settings = {**self._settings, **({OUTLINES: file_sha256(Path(outlines))} if outlines else {})}
        return Origin(identity.size, identity.sample_sha256, mpp, sha256, self._classes, settings, bounds_yx)

    def of_images(self, files: Sequence[Path], models: Mapping[str, Path]) -> Origin:
        """Current origin of the features of images.

        Raises:
            SlideError: a file cannot be read.
        """
        identities = [slide_identity(path) for path in files]
        digest = images_sha256(each.sample_sha256 for each in identities)
        size = sum(each.size for each in identities)
        return Origin(size, digest, None, self._digests(models), self._classes, self._settings)

    def _digests(self, models: Mapping[str, Path]) -> dict[str, str]:
        for model in models.values():
            if model not in self._sha256_of:
                self._sha256_of[model] = file_sha256(model)
        return {name: self._sha256_of[model] for name, model in models.items()}


def slide_identity(path: Path) -> FileIdentity:
    """Content identity of a slide.

    Raises:
        SlideError: the slide cannot be read.
    """
    try:
        return identify_slide(path)
    except InputFileError as error:
        raise SlideError(path, error.problem.removeprefix(f"{path}: ")) from None
    except OSError as error:
        raise SlideError(path, f"cannot be read ({error.strerror})") from None


def read_origin(path: Path) -> dict[str, Any] | None:
    """Origin in the json beside a csv; None if it is missing or a file has changed."""
    if not (path.is_file() and path.with_suffix(".csv").is_file()):
        return None
    try:
        about = read_json(path, "", {MADE_FROM: ORIGIN_SHAPE, CSV_SHA256: SHA256})
    except InputFileError:
        return None
    is_whole = opened(about, RECORD_SEAL) is not None
    return (
        about[MADE_FROM] if is_whole and file_sha256(path.with_suffix(".csv")) == about[CSV_SHA256] else None
    )
