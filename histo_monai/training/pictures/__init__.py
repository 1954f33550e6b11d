"""Pictures that trainings leave beside their models; those of results are drawn in `reports`."""
