"""What a map was made from: the same slide, models and settings give the same scores, and are not looked at twice."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
"""Name of the setting in which networks compute; float32 if missing."""

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
"""Shape of `Origin.as_dict`, see `utils.storage.shapes`."""


@dataclass(frozen=True)
class Origin:
    """What decides the scores of a slide.

    A slide is known by its content: a copy, or one that was moved, is the same slide; another file under the same name
    is not.

    Attributes:
        slide_bytes: Size of the slide's files.
        slide_sample_sha256: Of samples of them, see `storage.FileIdentity`.
        slide_mpp: µm per level-0 pixel, the file's or the given one; None of images.
        model_sha256: Column of the csv -> digest of the model's file.
        classes: Whose probabilities are mapped; none for a score.
        settings: How the slide is looked at, by name; `PRECISION` among them where that is not float32.
        bounds_yx: Corner of the slide's bounds, see `slides.Slide`; results that do not state it count as (0, 0).
    """

    slide_bytes: int
    slide_sample_sha256: str
    slide_mpp: float | None
    model_sha256: Mapping[str, str]
    classes: tuple[str, ...]
    settings: Mapping[str, float | str]
    bounds_yx: tuple[int, int] = (0, 0)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "classes": list(self.classes), "bounds_yx": list(self.bounds_yx)}

    def differences(self, before: Mapping[str, Any]) -> list[str]:
        """In words, how a map that was made from `before` (`as_dict`) differs from the one that this would give."""
        now = self.as_dict()
        differing = []
        if any(before.get(name) != now[name] for name in ("slide_bytes", "slide_sample_sha256")):
            differing.append("the slide's content differs")
        if before.get("slide_mpp") != self.slide_mpp:
            differing.append(f"the slide's µm/px was {before.get('slide_mpp')}, now {self.slide_mpp}")
        if before.get("bounds_yx", [0, 0]) != now["bounds_yx"]:
            differing.append(
                f"the slide's bounds begin at y, x = {now['bounds_yx']}, which it does not state"
            )
        return differing + self.other_look(before)

    def other_look(self, before: Mapping[str, Any]) -> list[str]:
        """As `differences`, whatever the slide."""
        settings = before.get("settings")
        settings = {PRECISION: "float32", **(settings if isinstance(settings, dict) else {})}
        differing = []
        if before.get("model_sha256") != self.model_sha256:
            differing.append("the model differs")
        if before.get("classes") != list(self.classes):
            differing.append(f"the classes were {before.get('classes')}, now {list(self.classes)}")
        for name, value in {PRECISION: "float32", **self.settings}.items():
            if settings.get(name) != value:
                differing.append(f"{name} was {settings.get(name)}, now {value}")
        return differing


def numeric_settings(device: torch.device) -> dict[str, str]:
    """What decides numbers where networks run on this device, and is not float32, for `Origin.settings`."""
    return {PRECISION: "bfloat16"} if computes_in_bfloat16(device) else {}


class Origins:
    """Origins of the maps of one call; each model is read once."""

    def __init__(self, classes: tuple[str, ...], settings: Mapping[str, float | str]) -> None:
        self._classes, self._settings = classes, settings
        self._sha256_of: dict[Path, str] = {}

    def of(self, path: Path, mpp: float | None, models: Mapping[str, Path]) -> Origin:
        """What a map of this slide is made from, as it is now.

        Raises:
            SlideError: The slide cannot be opened.
            OSError: A model cannot be read.
        """
        with open_slide(path, mpp) as slide:
            mpp, bounds_yx = slide.mpp, slide.bounds_yx
        identity = slide_identity(path)
        sha256 = self._digests(models)
        return Origin(
            identity.size, identity.sample_sha256, mpp, sha256, self._classes, self._settings, bounds_yx
        )

    def of_images(self, files: Sequence[Path], models: Mapping[str, Path]) -> Origin:
        """What features of images are made from, as they are now.

        Raises:
            SlideError: A file cannot be read.
        """
        identities = [slide_identity(path) for path in files]
        digest = hashlib.sha256("".join(each.sample_sha256 for each in identities).encode()).hexdigest()
        size = sum(each.size for each in identities)
        return Origin(size, digest, None, self._digests(models), self._classes, self._settings)

    def _digests(self, models: Mapping[str, Path]) -> dict[str, str]:
        for model in models.values():
            if model not in self._sha256_of:
                self._sha256_of[model] = file_sha256(model)
        return {name: self._sha256_of[model] for name, model in models.items()}


def slide_identity(path: Path) -> FileIdentity:
    """`storage.identify_slide`.

    Raises:
        SlideError: It cannot be read.
    """
    try:
        return identify_slide(path)
    except InputFileError as error:
        raise SlideError(path, str(error).removeprefix(f"{path}: ")) from None
    except OSError as error:
        raise SlideError(path, f"cannot be read ({error.strerror})") from None


def read_origin(path: Path) -> dict[str, Any] | None:
    """What a map was made from, by the json beside its csv; None where it is not known, or either is not as written."""
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
