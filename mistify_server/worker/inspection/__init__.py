"""Looking at a model and its data before anything is started."""
