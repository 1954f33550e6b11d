"""Fast baselines beside a network: colors, stains, and features of a frozen encoder."""
