"""Source models by form: Keras models, and graphs of unknown structure."""
