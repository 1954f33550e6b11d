"""Networks: encoder, heads, losses, and model files. Names are imported from their modules."""
