"""Mistify's conversion of an ONNX file: `python -m benchmarks.porting.onnx_converters_own ONNX TFLITE`."""

import sys
from pathlib import Path

from executors.sources.onnx.loading import load_onnx
from mistify_server.worker.packaging.conversion.converter import convert

if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(convert(load_onnx(Path(sys.argv[1]))))
