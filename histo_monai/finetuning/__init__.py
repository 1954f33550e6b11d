"""Fine-tuning: encoder depth, linear start, trainer, and the heads that learn in seconds."""
