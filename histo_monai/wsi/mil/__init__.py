"""Multiple-instance learning: slides that are known by one label each teach which of their patches matter."""
