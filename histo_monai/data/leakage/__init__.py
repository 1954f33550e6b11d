"""Leakage audit of the index: no test patient, slide or image may be in training or pretraining under any name."""
