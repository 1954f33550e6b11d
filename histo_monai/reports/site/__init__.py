"""Report page of a run: text, tables, charts and slides in one folder, opened without a server."""
