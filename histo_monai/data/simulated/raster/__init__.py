"""Random fields on a raster; stain densities -> scanner pixels -> TIFF files."""
