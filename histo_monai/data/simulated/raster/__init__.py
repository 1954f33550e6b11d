"""Random fields on a raster, and the way from stain densities to the pixels of a scanner and to TIFF files."""
