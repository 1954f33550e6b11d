"""Pictures that trainings save beside their models."""
