"""The regular cells of a slide: which hold tissue, and their pixels block by block."""
