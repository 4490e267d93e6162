#!/usr/bin/env bash
# TensorFlow.js 4.22.0 with the WASM backend: slopes of a PReLU that channels share are applied to other places.
#
# Expected: `tf.prelu` broadcasts the slopes to the shape of the input, as with the CPU backend: with slopes of the
# shape [3, 1], each column has one for all of its channels, as after a PReLU layer whose channels share their slopes.
# Observed: the slopes are taken in turn, from the first number to the last, whatever their shape. Columns with the
# slopes 1, 2 and 3 and two channels get 1, 2, 3, 1, 2, 3 instead of 1, 1, 2, 2, 3, 3. There is no warning; one slope
# for each channel, one for each number, or one for all are right.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
npm install --silent --no-audit --no-fund --prefix "$directory" @tensorflow/tfjs-core@4.22.0 \
    @tensorflow/tfjs-layers@4.22.0 @tensorflow/tfjs-backend-cpu@4.22.0 @tensorflow/tfjs-backend-wasm@4.22.0
cat > run.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import path from "node:path";
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-backend-cpu";
import { setWasmPaths } from "@tensorflow/tfjs-backend-wasm";
import { layers, sequential } from "@tensorflow/tfjs-layers";

console.log("TensorFlow.js", tf.version_core);
setWasmPaths(path.resolve("node_modules/@tensorflow/tfjs-backend-wasm/dist") + "/");
const [COLUMNS, CHANNELS] = [3, 2];

// Return the outputs of a PReLU layer for -1 at each column and channel.
async function outputs(backend, sharedAxes, shape) {
  await tf.setBackend(backend);
  const layer = layers.prelu({ sharedAxes, inputShape: [COLUMNS, CHANNELS] });
  const network = sequential({ layers: [layer] });
  const slopes = tf.reshape(tf.range(1, shape[0] * shape[1] + 1), shape);
  layer.setWeights([slopes]);
  return [...(await network.predict(tf.fill([1, COLUMNS, CHANNELS], -1)).data())];
}

const places = Array.from({ length: COLUMNS * CHANNELS }, (_, at) => [Math.floor(at / CHANNELS), at % CHANNELS]);
for (const [sharedAxes, shape] of [[[1], [1, CHANNELS]], [[2], [COLUMNS, 1]], [[], [COLUMNS, CHANNELS]]]) {
  const expected = places.map(([y, x]) => -(1 + (shape[0] > 1 ? y * shape[1] : 0) + (shape[1] > 1 ? x : 0)));
  const [cpu, wasm] = [await outputs("cpu", sharedAxes, shape), await outputs("wasm", sharedAxes, shape)];
  console.log(`slopes of shape ${shape}: by hand`, expected, "CPU", cpu, "WASM", wasm);
  assert.deepEqual(cpu, expected);
  const inTurn = places.map((_, at) => -(1 + (at % (shape[0] * shape[1]))));
  assert.deepEqual(wasm, inTurn);
  assert.equal(expected.join() === inTurn.join(), shape[1] > 1);
}
JAVASCRIPT
node run.mjs
