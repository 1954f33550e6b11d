"""Momentum contrast: the method, its network and queue, its loss, its views and its picture."""
