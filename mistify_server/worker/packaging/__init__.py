"""From a checkpoint to a package: `serve.tflite` and `manifest.json`."""
