"""From params.yaml to results: stages, commands and what they share. Only this package reads params and knows paths."""
