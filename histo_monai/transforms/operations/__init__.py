"""Augmentation operations: one class each, with parameters, sampling, and execution by OpenCV and torch."""
