"""From predictions to numbers with intervals, and to the choice between two models."""
