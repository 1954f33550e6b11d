"""Nuclei, and what cells line: glands, ducts and vessels."""
