"""Export of models as MONAI bundles, ONNX and backbones; import of bundles and state dicts."""
