"""Training, distillation, and the evaluation of networks."""
