"""Input page of the stage `check`."""
