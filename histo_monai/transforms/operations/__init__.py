"""Augmentation operations: one class each, with its parameters, its draw and its executions by OpenCV and by torch."""
