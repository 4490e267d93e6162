#!/usr/bin/env bash
# TensorFlow.js 4.22.0: the Resizing layer does not crop, and `cropToAspectRatio` decides how pixels are aligned.
#
# Expected: the layer computes what it computes in Keras: pixels lie at their centres, so that a row of the numbers 0 to
# 7 becomes 0.5, 2.5, 4.5 and 6.5; with `cropToAspectRatio`, the middle of an image is resized, without distortion.
# Observed: the corners are aligned, so that the row becomes 0, 2.33, 4.67 and 7, and by the nearest pixel 0, 2, 5 and 7
# instead of 1, 3, 5 and 7. With `cropToAspectRatio`, nothing is cropped: 2 x 8 pixels become 2 x 2 pixels of columns 0
# and 4 instead of 3 and 4, and the row becomes 0, 2, 4 and 6, as in TensorFlow 1. There is no warning. A network with
# this layer in front sees other images in the browser than in training.
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
import { layers } from "@tensorflow/tfjs-layers";

console.log("TensorFlow.js", tf.version_core);
const row = [0, 1, 2, 3, 4, 5, 6, 7];

// Return the first row of an image with two equal rows behind the layer.
function resized(width, options) {
  const layer = layers.resizing({ height: 2, width, ...options });
  const values = [...layer.apply(tf.tensor([...row, ...row], [1, 2, row.length, 1])).dataSync()];
  return values.slice(0, width).map((value) => Math.round(value * 100) / 100);
}

// Return the row at places, between its pixels or by the nearest one.
function at(places, nearest) {
  if (nearest) return places.map((place) => row[Math.round(place)]);
  return places.map((place) => Math.round(place * 100) / 100);
}

const places = [0, 1, 2, 3];
const centres = places.map((place) => (place + 0.5) * 2 - 0.5);
const corners = places.map((place) => (place * 7) / 3);
for (const nearest of [false, true]) {
  const interpolation = nearest ? "nearest" : "bilinear";
  // Between two pixels, the nearest one by centres is the next one.
  const [plain, exact] = [resized(4, { interpolation }), at(centres, nearest)];
  console.log(`${interpolation}: TensorFlow.js`, plain, "exactly", exact);
  assert.deepEqual(plain, at(corners, nearest));
  assert.notDeepEqual(plain, exact);
  const cropped = resized(4, { interpolation, cropToAspectRatio: true });
  console.log(`${interpolation}, cropped: TensorFlow.js`, cropped, "exactly", row.slice(2, 6));
  assert.deepEqual(cropped, [0, 2, 4, 6]);
}
const square = resized(2, { interpolation: "bilinear", cropToAspectRatio: true });
console.log("2 x 8 cropped to 2 x 2: TensorFlow.js", square, "exactly", row.slice(3, 5));
assert.deepEqual(square, [0, 4]);
JAVASCRIPT
node run.mjs
