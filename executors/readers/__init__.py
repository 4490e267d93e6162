"""One module for each format of data, and what checks the data against the model."""
