"""Names of a run's two models in tables, folders and pictures."""

from __future__ import annotations

FINETUNED, STUDENT = "finetuned", "student"
"""The fine-tuned model, and the semi-supervised model trained from it."""

MODELS = (FINETUNED, STUDENT)
MODEL_FILE = "model.safetensors"
"""File of a fine-tuned model or student, in its folder."""
