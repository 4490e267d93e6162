"""What a config asks of a package: precision, compression, branches, training on the device."""
