#!/usr/bin/env bash
# TensorFlow.js 4.22.0 enlarges images in UpSampling2D by other pixels than Keras, if the interpolation is bilinear.
#
# Expected: the layer computes what it computes in Keras: each pixel of the result lies at its centre, so that a row of
# 1, 2 and 4 becomes 1, 1.25, 1.75, 2.5, 3.5 and 4.
# Observed: it becomes 1, 1.5, 2, 3, 4 and 4, as in TensorFlow 1: the image moves by half a pixel of the result to the
# upper left, and its last pixel is repeated. Masks of a network for segmentation are shifted, the more the more often
# it enlarges. `tf.image.resizeBilinear` of the same library gives Keras' numbers with `halfPixelCenters`, which the
# layer does not set.
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

const options = { size: [1, 2], interpolation: "bilinear", data_format: "channels_last" };
const { values } = await outputs([1, 3, 1], [1, 2, 4], [["UpSampling2D", options]]);
const centred = tf.image.resizeBilinear(tf.tensor([1, 2, 4], [1, 3, 1]), [1, 6], false, true).dataSync();
const positions = [-0.25, 0.25, 0.75, 1.25, 1.75, 2.25].map((position) => Math.min(Math.max(position, 0), 2));
const row = [1, 2, 4, 4];
const value = (left, share) => row[left] + share * (row[left + 1] - row[left]);
const expected = positions.map((at) => value(Math.floor(at), at % 1));
console.log("by hand:", expected, "resizeBilinear with halfPixelCenters:", [...centred], "UpSampling2D:", values);
assert.deepEqual([...centred], expected);
assert.deepEqual(values, [1, 1.5, 2, 3, 4, 4]);
JAVASCRIPT
node run.mjs
