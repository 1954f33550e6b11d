"""Nuclei, and structures lined by cells: glands, ducts and vessels."""
