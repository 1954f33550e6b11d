"""Files, processes, settings, errors: no module here knows of slides or networks."""
