"""The page of a whole run: sections of text, tables, charts and slides, in one folder that opens from disk."""
