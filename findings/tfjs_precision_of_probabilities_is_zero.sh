#!/usr/bin/env bash
# TensorFlow.js 4.22.0: the metric `precision` is 0 for all probabilities, as it counts predictions of exactly 1 alone.
#
# Expected: `metrics: ["precision"]` gives the share of right ones of those predictions that are above 0.5, as in Keras.
# Observed: predictions are compared with 1, so that the precision of a network with a sigmoid or softmax, which gives
# 0.9 or 0.8, is 0 during training and evaluation, however good it is. A sigmoid that saturates to 1 in float32, above
# about 17, is all that counts. There is no warning. `binaryAccuracy` has a threshold of 0.5.
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
const logits = [4, 3, 2, 1, -1, -2, 20, -3];
const truth = [1, 1, 1, 0, 0, 0, 1, 1];
const network = sequential({ layers: [layers.activation({ activation: "sigmoid", inputShape: [1] })] });
network.compile({ loss: "binaryCrossentropy", optimizer: "sgd", metrics: ["precision", "binaryAccuracy"] });

// Return precision and accuracy of the first examples, by the library and by hand.
function evaluated(count) {
  const inputs = tf.tensor(logits.slice(0, count), [count, 1]);
  const targets = tf.tensor(truth.slice(0, count), [count, 1]);
  const [, precision, accuracy] = network.evaluate(inputs, targets).map((value) => value.dataSync()[0]);
  const positive = truth.slice(0, count).filter((_, place) => logits[place] > 0);
  const byHand = positive.filter((label) => label === 1).length / positive.length;
  console.log(`${count} examples: precision by hand ${byHand}, precision ${precision}, binaryAccuracy ${accuracy}`);
  return { byHand, precision, accuracy };
}

const ordinary = evaluated(6);
assert.ok(ordinary.byHand === 0.75 && ordinary.precision === 0 && ordinary.accuracy > 0.8);
const saturated = evaluated(8);
assert.ok(saturated.byHand === 0.8 && saturated.precision === 1);
JAVASCRIPT
node run.mjs
