"""Jobs in MLflow: runs with parameters, figures and training curves, and packages as models."""
