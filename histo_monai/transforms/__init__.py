"""Batched MONAI transforms that run on the device of the batch."""
