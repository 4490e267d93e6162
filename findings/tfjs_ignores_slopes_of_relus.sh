#!/usr/bin/env bash
# TensorFlow.js 4.22.0 ignores `negative_slope` and `threshold` of ReLU layers.
#
# Expected: the layer computes what Keras' ReLU computes with the same options, or is refused.
# Observed: with `max_value=6, negative_slope=0.1, threshold=1`, the numbers -2, -1, 0.5, 2 and 9 give 0, 0, 0.5, 2 and
# 6 instead of -0.3, -0.2, -0.05, 2 and 6: only `max_value` has an effect. There is no warning. LeakyReLU with `alpha`
# and ThresholdedReLU with `theta` are right.
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

const inputs = [-2, -1, 0.5, 2, 9];
const options = { max_value: 6, negative_slope: 0.1, threshold: 1 };
const expected = inputs.map((x) => (x >= 6 ? 6 : x >= 1 ? x : 0.1 * (x - 1)));
const { values } = await outputs([5], inputs, [["ReLU", options]]);
console.log("inputs:", inputs, "by Keras' definition:", expected, "ReLU:", values);
assert.deepEqual(values, [0, 0, 0.5, 2, 6]);
assert.deepEqual((await outputs([2], [-2, 1], [["LeakyReLU", { alpha: 0.1 }]])).values, [Math.fround(-0.2), 1]);
JAVASCRIPT
node run.mjs
