#!/usr/bin/env bash
# TensorFlow.js 4.22.0 ignores the dilation of DepthwiseConv2D and the output padding of Conv2DTranspose.
#
# Expected: a layer of a Keras model computes what it computes in Keras, or is refused.
# Observed: DepthwiseConv2D with `dilation_rate` 2 looks at neighbouring pixels, as without it; SeparableConv2D and the
# function `depthwiseConv2d` are right. Conv2DTranspose with `output_padding` gives a result that is a column smaller,
# and with `dilation_rate` the result without it. There is no warning. With padding "same", shapes are those of Keras,
# so that a network with dilated depthwise convolutions, as DeepLab's, runs and finds something else.
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
async function outputs(shape, values, layers, kernel) {
  const first = { class_name: "InputLayer", config: { name: "in", batch_input_shape: [null, ...shape] } };
  const named = layers.map(([class_name, config], place) => [class_name, { name: `layer${place}`, ...config }]);
  const rest = named.map(([class_name, config]) => ({ class_name, config }));
  const network = { class_name: "Sequential", config: { name: "network", layers: [first, ...rest] } };
  const artifacts = { modelTopology: { model_config: network, keras_version: "2.15.0", backend: "tensorflow" } };
  if (kernel) {
    artifacts.weightSpecs = [{ name: `layer0/${kernel.name}`, shape: kernel.shape, dtype: "float32" }];
    artifacts.weightData = new Float32Array(kernel.values).buffer;
  }
  const result = (await loadLayersModel(tf.io.fromMemory(artifacts))).predict(tf.tensor(values, [1, ...shape]));
  return { shape: result.shape, values: [...result.dataSync()].map((value) => Math.fround(value)) };
}

const common = { padding: "same", data_format: "channels_last", activation: "linear", use_bias: false };
const depthwise = { ...common, kernel_size: [1, 2], strides: [1, 1], dilation_rate: [1, 2], depth_multiplier: 1 };
const kernel = { name: "depthwise_kernel", shape: [1, 2, 1, 1], values: [1, 10] };
const layer = await outputs([1, 5, 1], [1, 2, 3, 4, 5], [["DepthwiseConv2D", depthwise]], kernel);
const row = tf.tensor([1, 2, 3, 4, 5], [1, 1, 5, 1]);
const dilated = tf.depthwiseConv2d(row, tf.tensor([1, 10], [1, 2, 1, 1]), 1, "same", "NHWC", [1, 2]);
const right = [0, 1, 2, 3, 4].map((at) => [0, 1, 2, 3, 4, 5, 0][at] + 10 * [0, 1, 2, 3, 4, 5, 0][at + 2]);
console.log("by hand:", right, "depthwiseConv2d:", [...dilated.dataSync()], "DepthwiseConv2D:", layer.values);
assert.deepEqual([...dilated.dataSync()], right);
assert.deepEqual(layer.values, [21, 32, 43, 54, 5]);

const sizes = { filters: 1, kernel_size: [1, 3], strides: [1, 2], dilation_rate: [1, 1] };
const transposed = { ...common, ...sizes, padding: "valid", output_padding: [0, 1] };
const weights = { name: "kernel", shape: [1, 3, 1, 1], values: [1, 10, 100] };
const padded = await outputs([1, 3, 1], [1, 2, 3], [["Conv2DTranspose", transposed]], weights);
console.log("columns with output_padding 1:", padded.shape[2], "instead of", (3 - 1) * 2 + 3 + 1);
assert.equal(padded.shape[2], 7);

const ones = { name: "kernel", shape: [2, 2, 1, 1], values: [1, 1, 1, 1] };
const spread = { ...transposed, kernel_size: [2, 2], strides: [1, 1], dilation_rate: [2, 2], output_padding: null };
const single = await outputs([1, 1, 1], [1], [["Conv2DTranspose", spread]], ones);
console.log("one pixel with a kernel of 2 x 2 and dilation 2:", single.shape.slice(1, 3), "instead of", [3, 3]);
assert.deepEqual(single.shape.slice(1, 3), [2, 2]);
JAVASCRIPT
node run.mjs
