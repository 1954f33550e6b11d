"""What all trainings share: epochs, handlers, resume, ranks, prediction."""
