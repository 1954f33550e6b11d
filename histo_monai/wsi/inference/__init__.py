"""Models on whole slides: heat-maps and features, patch by patch."""
