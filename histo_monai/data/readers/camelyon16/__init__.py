"""Camelyon16: metastases in lymph nodes."""
