#!/usr/bin/env bash
# TensorFlow.js 4.22.0 normalizes values by the wrong means, if batch norm is along another axis than the last.
#
# Expected: BatchNormalization with `axis=1` subtracts mean i from all values at place i of axis 1, as in Keras, and
# `batchNorm` applies a mean of any shape that can be broadcast, as it accepts it.
# Observed: on the CPU backend, the means and variances are taken in turn along the last axis, whatever their shape. Of
# the rows (1, 2) and (4, 8) with the means 1 and 2 and the variances 1 and 4, the layer makes (0, 0) and (3, 3) instead
# of (0, 1) and (1, 3). There is no warning; networks whose channels come first are wrong everywhere.
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
const spec = (name) => ({ name: `norm/${name}`, shape: [2], dtype: "float32" });
const specs = ["moving_mean", "moving_variance"].map(spec);
const first = { class_name: "InputLayer", config: { name: "in", batch_input_shape: [null, 2, 2] } };
const options = { name: "norm", axis: [1], epsilon: 0, center: false, scale: false };
const norm = { class_name: "BatchNormalization", config: options };
const network = { class_name: "Sequential", config: { name: "network", layers: [first, norm] } };
const artifacts = {
  modelTopology: { model_config: network, keras_version: "2.15.0", backend: "tensorflow" },
  weightSpecs: specs,
  weightData: new Float32Array([1, 2, 1, 4]).buffer,
};
const rows = tf.tensor([1, 2, 4, 8], [1, 2, 2]);
const layer = (await loadLayersModel(tf.io.fromMemory(artifacts))).predict(rows).dataSync();
const [mean, variance] = [tf.tensor([1, 2], [1, 2, 1]), tf.tensor([1, 4], [1, 2, 1])];
const direct = tf.batchNorm(rows, mean, variance, null, null, 0).dataSync();
const right = tf.div(tf.sub(rows, mean), tf.sqrt(variance)).dataSync();
console.log("by subtraction and division:", [...right], "BatchNormalization:", [...layer], "batchNorm:", [...direct]);
assert.deepEqual([...right], [0, 1, 1, 3]);
assert.deepEqual([...layer], [0, 0, 3, 3]);
assert.deepEqual([...direct], [0, 0, 3, 3]);
JAVASCRIPT
node run.mjs
