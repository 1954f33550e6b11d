from __future__ import annotations

import numpy as np
import pytest
import tifffile

from histo_monai.slides import SlideError
from histo_monai.slides.tiff import is_tiff, read_pages


@pytest.mark.parametrize("bigtiff", [False, True])
@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_the_tables_agree_with_tifffile(tmp_path, noise, bigtiff, byteorder):
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path, bigtiff=bigtiff, byteorder=byteorder) as writer:
        for step in (1, 2):
            writer.write(
                noise[::step, ::step],
                tile=(64, 48),
                photometric="rgb",
                description="Aperio something|MPP = 0.5",
                resolution=(20_000, 10_000),
                resolutionunit="CENTIMETER",
                metadata=None,
            )
    assert is_tiff(path)
    pages = read_pages(path)
    with tifffile.TiffFile(path) as file:
        assert len(pages) == len(file.pages) == 2
        for ours, theirs in zip(pages, file.pages, strict=True):
            assert ours.size_yx == (theirs.imagelength, theirs.imagewidth)
            assert ours.tile_yx == (64, 48)
            assert (ours.compression, ours.num_channels, ours.bits) == (1, 3, 8)
            np.testing.assert_array_equal(ours.offsets, theirs.dataoffsets)
            np.testing.assert_array_equal(ours.counts, theirs.databytecounts)
            assert ours.resolution_yx == (10_000, 20_000)
            assert ours.resolution_unit == 3
            assert ours.description.rstrip("\0") == "Aperio something|MPP = 0.5"


@pytest.mark.parametrize("num_bytes", [3, 6, 60, 2000])
def test_a_tiff_cut_off_in_its_tables_says_truncated(write_slide, noise, num_bytes):
    path = write_slide(noise)
    path.write_bytes(path.read_bytes()[:num_bytes])
    with pytest.raises(SlideError, match="truncated"):
        read_pages(path)


def test_directories_that_run_in_a_circle_end(write_slide, noise):
    path = write_slide(noise, (1, 2))
    with tifffile.TiffFile(path) as file:
        first, second = (page.offset for page in file.pages)
    data = bytearray(path.read_bytes())
    num_tags = int.from_bytes(data[second : second + 2], "little")
    at = second + 2 + 12 * num_tags
    data[at : at + 4] = first.to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(SlideError, match="circle"):
        read_pages(path)
