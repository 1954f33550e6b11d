"""Files, processes, settings and errors; independent of slides and networks."""
