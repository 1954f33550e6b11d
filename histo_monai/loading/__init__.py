"""Tables -> batches of pixels."""
