"""What methods share whose student trains whole: recipe, views, average of weights."""
