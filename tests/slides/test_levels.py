"""Which pages are levels, in which order, and what the file states of them."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile

from histo_monai.slides import Box, SlideError, open_slide
from tests.slides.drawn_slides import Waves, ome_xml, philips_xml
from tests.slides.drawn_tiff import DEFLATE, JPEG, LZW, NONE, DrawnPage, write_tiff

SIZE_YX = (600, 800)


@pytest.fixture
def waves():
    return Waves.draw(np.random.default_rng(7))


def level(waves, downsample, **how) -> DrawnPage:
    size_yx = tuple(size // downsample for size in SIZE_YX)
    how = {"subfile_type": int(downsample > 1), **how}
    return DrawnPage(waves.picture(size_yx, (downsample, downsample)), **how)


def other(size_yx, seed=1, **how) -> DrawnPage:
    return DrawnPage(Waves.draw(np.random.default_rng(seed)).picture(size_yx, (1, 1)), **how)


def error_of_patches(slide, waves, factors=(1, 2, 4)) -> float:
    """The largest mean difference of three patches from the closed form."""
    errors = []
    for factor in factors:
        patch = slide.read(Box((300.0, 400.0), 64, slide.mpp * factor)).transpose(1, 2, 0)
        ys, xs = ((np.arange(64) - 31.5) * factor + middle for middle in (300, 400))
        inside = np.ix_((ys > 8) & (ys < 592), (xs > 8) & (xs < 792))
        errors.append(np.abs(patch - waves.means(ys, xs, (factor, factor)))[inside].mean())
    return max(errors)


@pytest.mark.parametrize("subfile_type", [1, 9])
@pytest.mark.parametrize("size_yx", [(250, 260), (150, 500), (333, 150)])
def test_a_tiled_macro_of_another_aspect_is_no_level(waves, tmp_path, caplog, subfile_type, size_yx):
    macro = other(size_yx, subfile_type=subfile_type)
    path = write_tiff(tmp_path / "s.tif", [level(waves, 1, mpp=0.5), macro, level(waves, 2), level(waves, 4)])
    with caplog.at_level(logging.WARNING), open_slide(path) as slide:
        assert slide.level_downsamples == (1, 2, 4)
        assert error_of_patches(slide, waves) < 1
    (text,) = caplog.messages
    assert "s.tif" in text
    assert f"1 ({size_yx[1]} x {size_yx[0]} px)" in text


def test_a_macro_of_the_aspect_of_the_slide_is_no_level_since_it_looks_like_something_else(
    waves, tmp_path, caplog
):
    pages = [level(waves, 1, mpp=0.5), other((300, 400), subfile_type=1), level(waves, 4)]
    with caplog.at_level(logging.WARNING), open_slide(write_tiff(tmp_path / "s.tif", pages)) as slide:
        assert slide.level_downsamples == (1, 4)
        assert error_of_patches(slide, waves) < 1
    assert "(400 x 300 px)" in caplog.text


def test_a_macro_wider_than_the_slide_shifts_nothing(waves, tmp_path):
    """cuCIM counts positions from its widest image."""
    pages = [level(waves, 1, mpp=0.5), other((200, 1000), subfile_type=9), level(waves, 2)]
    with open_slide(write_tiff(tmp_path / "s.tif", pages)) as slide:
        assert slide.size_yx == SIZE_YX
        assert error_of_patches(slide, waves) < 1


@pytest.mark.parametrize("subfile_types", [(1, 0, 1), (0, 0, 0), (None, None, None)])
def test_size_resolution_and_power_come_from_the_largest_page_wherever_it_stands(
    waves, tmp_path, subfile_types
):
    pages = [level(waves, 2, mpp=0.5), level(waves, 1, mpp=0.25), level(waves, 4, mpp=1.0)]
    for page, subfile_type in zip(pages, subfile_types, strict=True):
        page.subfile_type = subfile_type
    with open_slide(write_tiff(tmp_path / "s.tif", pages)) as slide:
        assert slide.size_yx == SIZE_YX
        assert slide.mpp == pytest.approx(0.25)
        assert slide.level_downsamples == (1, 2, 4)
        assert error_of_patches(slide, waves) < 1


def test_the_power_is_that_of_the_largest_page(waves, tmp_path):
    pages = [
        level(waves, 2, description="Aperio a|AppMag = 20|MPP = 0.5"),
        level(waves, 1, description="Aperio b|AppMag = 40|MPP = 0.25"),
    ]
    with open_slide(write_tiff(tmp_path / "s.tif", pages)) as slide:
        assert (slide.mpp, slide.objective_power) == (0.25, 40)


@pytest.mark.parametrize(
    ("description", "tag_mpp", "message"),
    [
        ("Aperio a|MPP = 0.25", 0.5, ("0.25", "0.5", "mpp")),
        ("Aperio a|MPP = 0.25", 2.5, ("0.25", "2.5", "10 times", "px/mm", "mpp")),
        ("Aperio a|MPP = 0.25", 0.635, ("0.635", "px/inch", "mpp")),
        ("Aperio a|MPP = 0.25|AppMag = 40", 0.26, ()),
        ("Aperio a|MPP = 0.2325|AppMag = 20", None, ()),
        ("Aperio a|MPP = 2.5|AppMag = 40", None, ("2.5", "40x", "10 times", "px/mm", "mpp")),
        ("Aperio a|MPP = 1|AppMag = 40", None, ("1 µm/px", "40x", "0.25", "mpp")),
    ],
)
def test_statements_that_contradict_each_other_are_one_warning(
    waves, tmp_path, caplog, description, tag_mpp, message
):
    path = write_tiff(tmp_path / "s.tif", [level(waves, 1, description=description, mpp=tag_mpp)])
    with caplog.at_level(logging.WARNING), open_slide(path):
        pass
    assert len(caplog.messages) == bool(message)
    for text in message:
        assert text in caplog.text


def test_what_the_file_states_of_no_microscope_is_named(waves, tmp_path):
    path = write_tiff(tmp_path / "s.tif", [level(waves, 1, mpp=0.025)])
    with pytest.raises(SlideError, match=r"0\.025.*column mpp of the table of slides"):
        open_slide(path)


@pytest.mark.parametrize("with_levels", [True, False])
@pytest.mark.parametrize("software", ["Philips DP v1.0", ""])
def test_the_spacing_of_a_philips_tiff_is_read_from_its_xml(waves, tmp_path, with_levels, software):
    size_yx = (768, 1024)  # Whole tiles, as its levels are.
    full = DrawnPage(waves.picture(size_yx, (1, 1)), compression=JPEG, subfile_type=0, software=software)
    full.description = philips_xml(0.2428, 3, with_levels=with_levels)
    levels = [
        DrawnPage(waves.picture((size_yx[0] // n, size_yx[1] // n), (n, n)), compression=JPEG, subfile_type=1)
        for n in (2, 4)
    ]
    with open_slide(write_tiff(tmp_path / "s.tif", [full, *levels])) as slide:
        assert slide.mpp == pytest.approx(0.2428)
        assert (slide.backend, slide.level_downsamples) == ("cucim", (1, 2, 4))
        assert error_of_patches(slide, waves) < 2.5


@pytest.mark.parametrize(
    ("length", "unit"),
    [
        (0.25, "µm"),
        (0.25, "\u03bcm"),
        (250, "nm"),
        (0.00025, "mm"),
        (2.5e-5, "cm"),
        (2.5e-7, "m"),
        (2500, "Å"),
    ],
)
def test_the_size_of_an_ome_pixel_is_read_in_any_unit(waves, tmp_path, length, unit):
    page = level(waves, 1, description=ome_xml([("slide", SIZE_YX)], length, unit, 40))
    with open_slide(write_tiff(tmp_path / "s.ome.tif", [page])) as slide:
        assert slide.mpp == pytest.approx(0.25)
        assert slide.objective_power == 40


@pytest.mark.parametrize("compression", [NONE, DEFLATE, JPEG, LZW])
@pytest.mark.parametrize("macro_first", [True, False])
def test_levels_of_ome_are_read_from_sub_ifds_also_behind_a_macro(waves, tmp_path, compression, macro_first):
    coding = {"compression": compression, "tile_px": 128}
    full = level(waves, 1, **coding, sub_pages=[level(waves, 2, **coding), level(waves, 4, **coding)])
    macro = other((150, 400), tile_px=64, subfile_type=0)
    pages = [macro, full] if macro_first else [full, macro]
    names = [("macro", (150, 400)), ("slide", SIZE_YX)]
    pages[0].description = ome_xml(names if macro_first else names[::-1], 0.25, "µm", None)
    with open_slide(write_tiff(tmp_path / "s.tif", pages)) as slide:
        assert slide.size_yx == SIZE_YX
        assert slide.mpp == pytest.approx(0.25)
        assert slide.level_downsamples == (1, 2, 4)
        assert error_of_patches(slide, waves) < 1.5


def test_an_ome_tiff_of_tifffile_is_read(waves, tmp_path):
    """Written by a library, not by these tests."""
    with tifffile.TiffWriter(tmp_path / "s.ome.tif", bigtiff=True) as writer:
        about = {"axes": "YXS", "PhysicalSizeX": 250, "PhysicalSizeXUnit": "nm"}
        about |= {"PhysicalSizeY": 250, "PhysicalSizeYUnit": "nm"}
        how = {"tile": (128, 128), "photometric": "rgb", "compression": "deflate"}
        writer.write(level(waves, 1).pixels, subifds=2, metadata=about, **how)
        for downsample in (2, 4):
            writer.write(level(waves, downsample).pixels, subfiletype=1, **how)
    with open_slide(tmp_path / "s.ome.tif") as slide:
        assert slide.mpp == pytest.approx(0.25)
        assert slide.level_downsamples == (1, 2, 4)
        assert error_of_patches(slide, waves) < 1


@pytest.mark.parametrize("compression", [NONE, DEFLATE, LZW])
def test_bits_in_reverse_are_put_right(waves, tmp_path, compression):
    page = level(waves, 1, compression=compression, is_reversed=True, mpp=0.5)
    with open_slide(write_tiff(tmp_path / "s.tif", [page])) as slide:
        assert error_of_patches(slide, waves) < 1


def test_floats_are_refused_at_opening_with_what_they_are(tmp_path):
    tifffile.imwrite(
        tmp_path / "s.tif",
        np.zeros((256, 256, 3), np.float32),
        tile=(64, 64),
        photometric="rgb",
        metadata=None,
    )
    with pytest.raises(SlideError, match=r"32-bit float samples\. Fix: save it as 8-bit"):
        open_slide(tmp_path / "s.tif", mpp=0.5)


def test_a_tile_as_wide_as_no_decoder_should_be_asked_for_is_refused(tmp_path):
    pixels = np.full((16, 2**16, 3), 200, np.uint8)
    tifffile.imwrite(tmp_path / "s.tif", pixels, tile=(16, 2**16), photometric="rgb", metadata=None)
    with pytest.raises(SlideError, match="65536 x 16 px"):
        open_slide(tmp_path / "s.tif", mpp=0.5)


def test_a_lone_mrxs_names_the_folder_that_it_needs(tmp_path):
    (tmp_path / "case 7.mrxs").write_bytes(b"\xff\xd8\xff\xe0" + bytes(100))
    with pytest.raises(SlideError, match=r"folder case 7 beside it"):
        open_slide(tmp_path / "case 7.mrxs")


def test_warnings_of_glib_stay_off_the_terminal(waves, tmp_path):
    pages = [level(waves, 1, mpp=0.5), other((300, 300), subfile_type=1), level(waves, 2)]
    pages.append(other((200, 400), subfile_type=1))
    path = write_tiff(tmp_path / "s.tif", pages)
    code = (
        "import sys, openslide; from pathlib import Path; from histo_monai.slides import openslide_backend\n"
        "try: openslide_backend.OpenSlideBackend(Path(sys.argv[1]), [Path(sys.argv[1])])\n"
        "except openslide.OpenSlideError: pass"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_generic_tiff_that_is_named_as_another_format_is_read_by_openslide(tmp_path: Path) -> None:
    path = tmp_path / "a.ndpi"
    pixels = np.random.default_rng(0).integers(0, 256, (256, 256, 3), np.uint8)
    tifffile.imwrite(
        path, pixels, tile=(64, 64), photometric="rgb", resolution=(1e4, 1e4), resolutionunit="CENTIMETER"
    )
    with open_slide(path) as slide:
        patch = slide.read(Box(center_yx=(128, 128), side_px=256, mpp=slide.mpp))
        assert (slide.backend, slide.size_yx) == ("openslide", (256, 256))
    assert (patch.transpose(1, 2, 0) == pixels).all()


def test_a_tiff_without_any_page_or_without_color_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    path.write_bytes(b"II*\0" + bytes(104))
    with pytest.raises(SlideError, match="not a slide"):
        open_slide(path)
    tifffile.imwrite(path, np.full((256, 256), 200, np.uint8), tile=(64, 64), photometric="minisblack")
    with pytest.raises(SlideError, match="gray values"):
        open_slide(path)
