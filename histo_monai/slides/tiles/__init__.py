"""Regular grid of a slide: cells with tissue, and their pixels block by block."""
