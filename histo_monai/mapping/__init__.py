"""Maps of whole slides: their grid, patches cell by cell, values on disk; `engines.heatmap` has networks make them."""
