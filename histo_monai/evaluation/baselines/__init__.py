"""What costs seconds beside a network: colors, stains, and the features of an encoder that is not fine-tuned."""
