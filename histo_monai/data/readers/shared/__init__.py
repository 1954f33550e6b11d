"""What readers of several datasets share."""
