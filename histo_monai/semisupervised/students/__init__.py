"""Base of students that train all layers: recipe, views, average of weights."""
