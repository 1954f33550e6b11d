"""Kather: nine classes of colorectal tissue."""
