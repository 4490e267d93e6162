"""The parts of a config about the package: precision, compression, branches, training on the device."""
