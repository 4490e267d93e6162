#!/usr/bin/env bash
# TensorFlow.js 4.22.0 averages over masked steps of a sequence, and drops the dimensions that pooling is to keep.
#
# Expected: GlobalAveragePooling1D leaves out the steps that Masking or Embedding masks, as in Keras, and pools with
# `keepdims` keep dimensions of size 1.
# Observed: the padding counts: a sequence of 1 and 3 that is padded to 10 steps has the average 0.4 instead of 2, which
# depends on the length of the longest text in a batch. A result of a global pool with `keepdims` has two dimensions.
# There is no warning.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
npm install --silent --no-audit --no-fund --prefix "$directory" @tensorflow/tfjs-core@4.22.0 \
    @tensorflow/tfjs-layers@4.22.0 @tensorflow/tfjs-backend-cpu@4.22.0
cat > run.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-backend-cpu";
import { loadLayersModel } from "@tensorflow/tfjs-layers";


console.log("TensorFlow.js", tf.version_core);

// Return what a network of layers as Keras saves them gives for an input.
async function outputs(shape, values, layers) {
  const first = { class_name: "InputLayer", config: { name: "in", batch_input_shape: [null, ...shape] } };
  const named = layers.map(([class_name, config], place) => [class_name, { name: `layer${place}`, ...config }]);
  const rest = named.map(([class_name, config]) => ({ class_name, config }));
  const network = { class_name: "Sequential", config: { name: "network", layers: [first, ...rest] } };
  const artifacts = { modelTopology: { model_config: network, keras_version: "2.15.0", backend: "tensorflow" } };
  const result = (await loadLayersModel(tf.io.fromMemory(artifacts))).predict(tf.tensor(values, [1, ...shape]));
  return { shape: result.shape, values: [...result.dataSync()].map((value) => Math.fround(value)) };
}

const sequence = [1, 3, 0, 0, 0, 0, 0, 0, 0, 0];
const pool = ["GlobalAveragePooling1D", { data_format: "channels_last", keepdims: false }];
const average = await outputs([10, 1], sequence, [["Masking", { mask_value: 0 }], pool]);
console.log("average of 1 and 3 with 8 masked steps:", average.values);
assert.deepEqual(average.values, [Math.fround(0.4)]);

for (const name of ["GlobalAveragePooling2D", "GlobalMaxPooling2D"]) {
  const kept = await outputs([2, 2, 1], [1, 1, 1, 1], [[name, { data_format: "channels_last", keepdims: true }]]);
  console.log(name, "with keepdims of [1, 2, 2, 1]:", kept.shape);
  assert.deepEqual(kept.shape, [1, 1]);
}
JAVASCRIPT
node run.mjs
