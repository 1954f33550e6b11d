"""Fine-tuning: encoder depth, linear start, trainer, and fast learners."""
