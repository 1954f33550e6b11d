"""The trainer of semi-supervised methods, and what it does before and after the steps."""
