from pathlib import Path

import numpy as np
import openslide
import pytest
import tifffile
from numpy.typing import NDArray

from histo_monai.data.simulated.raster.pyramid import level_downsamples, write_patch, write_pyramid


def smooth_picture(height: int, width: int) -> NDArray[np.uint8]:
    """Low frequencies only, so that JPEG and its chroma subsampling cost little."""
    y, x = np.mgrid[:height, :width]
    planes = [128 + 90 * np.sin(y / 211 + k) * np.cos(x / 283 - k) for k in range(3)]
    return np.rint(np.stack(planes, -1)).astype(np.uint8)


def strips(image: NDArray[np.uint8], rows: int):
    return (image[top : top + rows] for top in range(0, len(image), rows))


@pytest.mark.parametrize(("factor", "size"), [(2, (1500, 1111)), (4, (2050, 1300)), (2, (256, 700))])
def test_openslide_and_cucim_read_the_levels_and_the_resolution(
    tmp_path: Path, factor: int, size: tuple
) -> None:
    image = smooth_picture(*size)
    path = tmp_path / "slide.tif"
    write_pyramid(path, strips(image, 512), size, mpp=0.37, factor=factor, quality=92)
    expected = level_downsamples(*size, factor)
    slide = openslide.OpenSlide(str(path))
    assert float(slide.properties["openslide.mpp-x"]) == pytest.approx(0.37, rel=1e-4)
    assert slide.level_dimensions == tuple((size[1] // d, size[0] // d) for d in expected)
    cucim = pytest.importorskip("cucim").CuImage(str(path))
    assert cucim.resolutions["level_dimensions"] == slide.level_dimensions
    assert cucim.spacing()[:2] == pytest.approx([0.37, 0.37], rel=1e-4)
    for level, (downsample, (width, height)) in enumerate(zip(expected, slide.level_dimensions, strict=True)):
        mean = image[: height * downsample, : width * downsample].astype(float)
        mean = mean.reshape(height, downsample, width, downsample, 3).mean((1, 3))
        read = np.asarray(slide.read_region((0, 0), level, (width, height)).convert("RGB"))
        assert abs(read - mean).mean() < 1.5
        again = np.asarray(cucim.read_region((0, 0), (width, height), level=level))
        assert abs(again.astype(int) - read).mean() < 1


def test_tifffile_finds_no_dates_or_names(tmp_path: Path) -> None:
    path = tmp_path / "slide.tif"
    write_pyramid(path, [smooth_picture(600, 600)], (600, 600), mpp=0.5)
    with tifffile.TiffFile(path) as tiff:
        assert not {"DateTime", "Software", "HostComputer", "Artist"} & {
            t.name for p in tiff.pages for t in p.tags
        }
        assert [p.shape for p in tiff.pages] == [(600, 600, 3), (300, 300, 3), (150, 150, 3)]


def test_a_description_makes_it_an_aperio_slide(tmp_path: Path) -> None:
    path = tmp_path / "slide.svs"
    about = "Aperio Image Library v11.2.1 \r\n700x700|AppMag = 20|MPP = 0.4990"
    write_pyramid(path, [smooth_picture(700, 700)], (700, 700), mpp=0.499, factor=4, description=about)
    slide = openslide.OpenSlide(str(path))
    assert slide.properties["openslide.vendor"] == "aperio"
    assert slide.properties["openslide.mpp-x"] == "0.499"
    assert slide.properties["openslide.objective-power"] == "20"


def test_a_run_that_breaks_off_leaves_no_slide(tmp_path: Path) -> None:
    def broken():
        yield smooth_picture(512, 600)
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        write_pyramid(tmp_path / "slide.tif", broken(), (2000, 600), mpp=0.5)
    assert list(tmp_path.iterdir()) == []


def test_missing_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected \d+ tiles"):
        write_pyramid(tmp_path / "slide.tif", [smooth_picture(512, 600)], (2000, 600), mpp=0.5)
    assert list(tmp_path.iterdir()) == []


def test_big_tiff_reads_back_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = smooth_picture(700, 900)
    write_pyramid(tmp_path / "small.tif", [image], (700, 900), mpp=0.5)
    monkeypatch.setattr("histo_monai.data.simulated.raster.pyramid.BIG_PX", 1)
    write_pyramid(tmp_path / "big.tif", [image], (700, 900), mpp=0.5)
    read = [openslide.OpenSlide(str(tmp_path / f"{n}.tif")) for n in ("small", "big")]
    assert (tmp_path / "big.tif").read_bytes()[2:4] == b"\x2b\x00"
    assert read[0].level_dimensions == read[1].level_dimensions
    pixels = [np.asarray(s.read_region((0, 0), 1, (450, 350))) for s in read]
    np.testing.assert_array_equal(*pixels)


def test_patches_are_lossless_and_carry_their_resolution(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (64, 80, 3), dtype=np.uint8)
    write_patch(tmp_path / "patch.tif", image, 0.5)
    with tifffile.TiffFile(tmp_path / "patch.tif") as tiff:
        np.testing.assert_array_equal(tiff.asarray(), image)
        assert tiff.pages[0].tags["XResolution"].value == (20000, 1)
