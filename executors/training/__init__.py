"""Training, distillation, and measuring how well a network does."""
