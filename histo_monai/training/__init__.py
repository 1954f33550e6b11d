"""Parts common to all trainings: epochs, handlers, resume, ranks, prediction."""
