"""Models for use elsewhere: MONAI bundles, ONNX, the bare trunk; and the way back."""
