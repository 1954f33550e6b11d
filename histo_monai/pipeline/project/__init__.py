"""What a project is made from: its README.md, and in an installed package pipeline, params and docs beside it."""
