from __future__ import annotations

import logging

import openslide
import pytest

from histo_monai.data.readers.own.slides import read_slides
from histo_monai.slides import SlideError, open_slide, reader
from histo_monai.slides.resolution import PLAUSIBLE_MPP
from histo_monai.utils.errors import InputError
from histo_monai.utils.settings.rules import SlideMpp


@pytest.mark.parametrize(
    ("name", "mpp"),
    [
        ("cmu-1-small-region.svs", 0.499),  # Aperio MPP; cuCIM's spacing says 1.0
        ("stomach-metaplasia.tif", 0.2528),
        ("duodenum-adenoma.tif", 0.263018),
        ("asap-example.tif", 0.987197),
    ],
)
def test_real_slides_state_the_resolution_that_their_source_lists(real_slides, name, mpp):
    with open_slide(real_slides / name) as slide:
        assert slide.mpp == pytest.approx(mpp, rel=1e-5)


@pytest.mark.parametrize("name", ["lymph-node.tif", "tcga-cr-7395-01a-01-ts1.svs"])
def test_a_slide_without_resolution_is_an_error_that_names_it_and_the_manifest_column(real_slides, name):
    with pytest.raises(SlideError, match=rf"{name}: .*column mpp of the table of slides") as caught:
        open_slide(real_slides / name)
    assert "\n" not in str(caught.value)
    with open_slide(real_slides / name, mpp=0.25) as slide:
        assert slide.mpp == 0.25


def test_inches_and_centimeters_are_distinguished(write_slide, noise):
    inch = write_slide(
        noise, (1,), mpp=None, resolution=(50_800, 50_800), resolutionunit="INCH", name="a.tif"
    )
    cm = write_slide(
        noise, (1,), mpp=None, resolution=(20_000, 20_000), resolutionunit="CENTIMETER", name="b.tif"
    )
    for path in (inch, cm):
        with open_slide(path) as slide:
            assert slide.mpp == pytest.approx(0.5)


@pytest.mark.parametrize(
    "tags",
    [
        {"resolution": (72, 72), "resolutionunit": "INCH"},  # a picture editor's default: 353 µm/px
        {"resolution": (40_000, 40_000), "resolutionunit": "NONE"},
        {},
    ],
)
def test_tags_that_are_no_microscope_resolution_count_as_missing(write_slide, noise, tags):
    path = write_slide(noise, (1,), mpp=None, **tags)
    with pytest.raises(SlideError, match="column mpp of the table of slides"):
        open_slide(path)


def test_the_manifest_wins_and_a_contradiction_is_logged(write_slide, noise, caplog):
    path = write_slide(noise)
    with caplog.at_level(logging.WARNING):
        with open_slide(path, mpp=0.255) as slide:
            assert slide.mpp == 0.255
        assert not caplog.messages
        with open_slide(path, mpp=0.5) as slide:
            assert slide.mpp == 0.5
            assert slide.level_mpps == (0.5, 1.0, 2.0)
    assert any("0.5" in text and "0.25" in text and "slide.tif" in text for text in caplog.messages)


def test_an_impossible_resolution_in_the_manifest_is_refused(write_slide, noise):
    with pytest.raises(SlideError, match="mpp = 250 in the table of slides"):
        open_slide(write_slide(noise), mpp=250)


def test_pixels_that_are_not_square_are_refused(write_slide, noise):
    path = write_slide(noise, mpp=None, resolution=(40_000, 20_000), resolutionunit="CENTIMETER")
    with pytest.raises(SlideError, match="not square"):
        open_slide(path)


@pytest.mark.parametrize(
    ("name", "power"), [("cmu-1-small-region.svs", 20.0), ("stomach-metaplasia.tif", None)]
)
def test_the_objective_power_is_the_one_that_openslide_knows(real_slides, monkeypatch, name, power):
    stated = openslide.OpenSlide(str(real_slides / name)).properties.get("openslide.objective-power")
    assert (None if stated is None else float(stated)) == power
    with open_slide(real_slides / name) as slide:
        assert (slide.backend, slide.objective_power) == ("cucim", power)
    monkeypatch.setattr(reader, "why_not_cucim", lambda path, pages: "the test asks for OpenSlide")
    with open_slide(real_slides / name) as slide:
        assert (slide.backend, slide.objective_power) == ("openslide", power)


def test_the_manifest_params_and_files_have_one_range_of_resolutions(tmp_path):
    (only,) = SlideMpp.__metadata__
    assert (only.low, only.high) == PLAUSIBLE_MPP
    for mpp, is_right in ((0.05, True), (20, True), (0.04, False), (20.5, False), (64, False)):
        (tmp_path / "slides.csv").write_text(f"slide_id,path,mpp\na,a.tif,{mpp}\n")
        if is_right:
            assert read_slides(tmp_path)["mpp"].tolist() == [mpp]
        else:
            with pytest.raises(InputError, match=r"0\.05 to 20"):
                read_slides(tmp_path)
