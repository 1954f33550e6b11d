"""The two models of a run, by the names that tables, folders and pictures give them."""

from __future__ import annotations

FINETUNED, STUDENT = "finetuned", "student"
"""The model of the fine-tuning, and the one that a semi-supervised method made of it."""

MODELS = (FINETUNED, STUDENT)
