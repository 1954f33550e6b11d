"""Networks that share memory: copies with frozen parameters, models of folds."""
