"""Your own slides, patches and outlines."""
