"""Slide diagnosis from maps: detections, lesion matches, features, classifier, metrics."""
