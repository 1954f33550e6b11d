"""How files of somebody else are laid out, read strictly."""
