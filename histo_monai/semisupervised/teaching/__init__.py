"""Trainer of semi-supervised methods, with its preparation and completion."""
