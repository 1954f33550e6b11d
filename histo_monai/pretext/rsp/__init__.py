"""Resolution sequence prediction: the training; what it trains stands in `pretext.orders`."""
