#!/usr/bin/env bash
# TensorFlow.js 4.22.0 computes the loss and metrics of masked steps as well: networks learn from padding.
#
# Expected: with Masking or an Embedding with `maskZero` in front, the loss is that of the steps which are not masked, as
# in Keras, so that the targets behind the end of a sequence do not matter.
# Observed: recurrent layers skip masked steps and repeat their last output, which is then compared with the targets there.
# Of a sequence of 2 steps with errors of 1 and 2, padded to 3 with the target 9, the mean absolute error is 3.33, and with
# the target 2 it is 1. The gradients follow; there is no warning.
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
import { layers, sequential } from "@tensorflow/tfjs-layers";

console.log("TensorFlow.js", tf.version_core);
const recurrent = layers.simpleRNN({
  units: 1,
  kernelInitializer: "ones",
  recurrentInitializer: "zeros",
  activation: "linear",
  returnSequences: true,
});
const network = sequential({ layers: [layers.masking({ maskValue: 0, inputShape: [3, 1] }), recurrent] });
network.compile({ loss: "meanAbsoluteError", optimizer: "sgd", metrics: ["mae"] });
const sequence = tf.tensor([1, 2, 0], [1, 3, 1]);
const outputs = [...network.predict(sequence).dataSync()];
assert.deepEqual(outputs, [1, 2, 2]);
const losses = [9, 2].map((last) => {
  const values = network.evaluate(sequence, tf.tensor([2, 4, last], [1, 3, 1])).map((value) => value.dataSync()[0]);
  console.log(`outputs ${outputs}, targets 2,4,${last}, the last step masked: loss ${values[0]}, metric ${values[1]}`);
  assert.equal(values[0], values[1]);
  return values[0];
});
assert.ok(Math.abs(losses[0] - 10 / 3) < 1e-5 && Math.abs(losses[1] - 1) < 1e-5);
JAVASCRIPT
node run.mjs
