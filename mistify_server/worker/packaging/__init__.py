"""Packages made from checkpoints: `serve.tflite`, `train.tflite` and `manifest.json`.

`models` and `graphs` convert a network (`conversion`), `assemble` has it compared and measured (`measure`),
described (`manifest`) and put into files.
"""
