"""What the last layer of a model is given without a gradient: where it starts, and the shares that it keeps."""
