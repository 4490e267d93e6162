"""Packaging of checkpoints: `serve.tflite`, `train.tflite` and `manifest.json`.

`models` and `unchanged` convert a network (`conversion`). `assemble` compares and measures it
(`measurement`), describes it (`manifest`) and writes the files.
"""
