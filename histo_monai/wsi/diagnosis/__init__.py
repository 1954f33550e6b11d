"""From maps to the diagnosis of slides: detections, lesions that they hit, features, a classifier, how good it is."""
