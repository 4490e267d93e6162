"""The tests, one folder for each package; whole systems at the top."""
