"""BreastPathQ: scores of cellularity of breast tumor."""
