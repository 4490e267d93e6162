#!/usr/bin/env bash
# LiteRT's segment sum refuses segments without rows, which its converter accepts.
#
# Expected: a segment that no row belongs to has the sum 0, as the documentation of tf.math.segment_sum says.
# Observed: TensorFlow 2.21.0 converts the sum; the LiteRT 2.3.0 runtime ends with an error, and only once the network runs on
# such data. The unsorted form, tf.math.unsorted_segment_sum, gives 0.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tensorflow==2.21.0 ai-edge-litert==2.3.0 numpy==2.4.6
cd "$directory"
export TF_CPP_MIN_LOG_LEVEL=3
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

rows, with_gap, without_gap = np.float32([1, 2, 4, 8]), np.int32([0, 0, 2, 2]), np.int32([0, 0, 1, 1])


def converted(sums):
    signature = [tf.TensorSpec([4], name="rows"), tf.TensorSpec([4], tf.int32, name="segments")]
    traced = tf.function(sums, input_signature=signature).get_concrete_function()
    network = tf.lite.TFLiteConverter.from_concrete_functions([traced]).convert()

    def run(segments):
        interpreter = Interpreter(model_content=network)
        interpreter.allocate_tensors()
        for tensor in interpreter.get_input_details():
            interpreter.set_tensor(tensor["index"], rows if "rows" in tensor["name"] else segments)
        interpreter.invoke()
        return interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).tolist()

    return run


own = tf.math.segment_sum(rows, with_gap).numpy().tolist()
by_sorted = converted(tf.math.segment_sum)
by_unsorted = converted(lambda rows, segments: tf.math.unsorted_segment_sum(rows, segments, 3))
try:
    refused = by_sorted(with_gap)
except RuntimeError as error:
    refused = str(error).splitlines()[0]
print("TensorFlow", tf.__version__, "with a gap:", own)
print("LiteRT without a gap:", by_sorted(without_gap))
print("LiteRT with a gap:", refused)
print("LiteRT, unsorted, with a gap:", by_unsorted(with_gap))
assert own == by_unsorted(with_gap) == [3, 0, 12]
assert by_sorted(without_gap) == [3, 12]
assert "delta == 0 || delta == 1" in refused
PYTHON
