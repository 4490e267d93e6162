"""Roll-outs on a device: the installation of the packages that the server's roll-outs want it to run."""
