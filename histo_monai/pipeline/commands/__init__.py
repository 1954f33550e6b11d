"""What looks at finished experiments: one thin file per command."""
