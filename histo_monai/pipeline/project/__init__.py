"""Files of a new project: README.md, and in an installed package also pipeline, params and docs."""
