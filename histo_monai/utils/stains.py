"""Optical densities of hematoxylin, eosin and DAB."""

RGB_FROM_HED = ((0.65, 0.70, 0.29), (0.07, 0.99, 0.11), (0.27, 0.57, 0.78))
"""In red, green and blue: Ruifrok & Johnston 2001, rows as in scikit-image's `rgb_from_hed`."""

DARKEST = 0.5 / 255
"""Least value: 8 bits do not distinguish values below half a gray level from black. Limits the density to 2.7."""
