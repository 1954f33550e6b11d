"""Models on whole slides: heat-maps and patch features."""
