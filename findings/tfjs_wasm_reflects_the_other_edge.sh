#!/usr/bin/env bash
# TensorFlow.js 4.22.0 with the WASM backend: moved images are filled with the wrong edge, and with whole numbers only.
#
# Expected: `tf.image.transform` with "reflect" mirrors the image at its edges, as the CPU backend and TensorFlow for
# Python do, and `tf.image.rotateWithOffset` fills the corners with the `fillValue` that it is given.
# Observed: beyond the left or upper edge, all pixels are those of the right or lower edge: the row 1, 2, 3, 4, 5,
# moved by two pixels, begins with 5 and 5 instead of 2 and 1. The other edge is right. Corners of a rotated image are
# filled with the integer part: with 0 for 0.5, the grey of images between 0 and 1, and 0.5 with the CPU backend. There
# is no warning. Images that are changed in this way for training differ from those on another device.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
npm install --silent --no-audit --no-fund --prefix "$directory" @tensorflow/tfjs-core@4.22.0 \
    @tensorflow/tfjs-backend-cpu@4.22.0 @tensorflow/tfjs-backend-wasm@4.22.0
cat > run.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import path from "node:path";
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-backend-cpu";
import { setWasmPaths } from "@tensorflow/tfjs-backend-wasm";

console.log("TensorFlow.js", tf.version_core);
setWasmPaths(path.resolve("node_modules/@tensorflow/tfjs-backend-wasm/dist") + "/");

const row = [1, 2, 3, 4, 5];
const mirrored = [...row].reverse().concat(row, [...row].reverse());
const both = {};
for (const backend of ["cpu", "wasm"]) {
  await tf.setBackend(backend);
  const image = tf.tensor(row, [1, 1, 5, 1]);
  const moved = (pixels) => tf.image.transform(image, tf.tensor2d([[1, 0, -pixels, 0, 1, 0, 0, 0]]), "nearest", "reflect");
  const turned = (fill) => tf.image.rotateWithOffset(tf.ones([1, 3, 3, 1]), Math.PI / 4, fill, 0.5);
  const values = async (tensor) => [...(await tensor.data())];
  both[backend] = { right: await values(moved(2)), left: await values(moved(-2)) };
  for (const fill of [0.5, 2]) both[backend][`corner filled with ${fill}`] = (await values(turned(fill)))[0];
}
const byHand = { right: mirrored.slice(3, 8), left: mirrored.slice(7, 12) };
console.log("by hand", byHand, "\nCPU", both.cpu, "\nWASM", both.wasm);
assert.deepEqual(both.cpu, { ...byHand, "corner filled with 0.5": 0.5, "corner filled with 2": 2 });
assert.deepEqual(both.wasm, {
  right: [5, 5, 1, 2, 3],
  left: byHand.left,
  "corner filled with 0.5": 0,
  "corner filled with 2": 2,
});
JAVASCRIPT
node run.mjs
