"""What is solved for without a gradient: where the encoder ends, where the head's last layer starts, its shares."""
