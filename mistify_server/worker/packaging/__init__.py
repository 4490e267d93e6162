"""Packages made from checkpoints: `serve.tflite`, `train.tflite` and `manifest.json`.

`models` and `graphs` convert a network (`conversion`); `assemble` compares and measures it (`measure`),
describes it (`manifest`) and puts it into files.
"""
