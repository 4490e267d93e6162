#!/usr/bin/env bash
# TensorFlow.js 4.22.0 shuffles a data set again on each pass, if `reshuffleEachIteration` is false.
#
# Expected: "if false, elements will be returned in the same shuffled order on each iteration", as the documentation
# says, and as in TensorFlow for Python. So `take` and `skip` of a shuffled data set divide it.
# Observed: the order of each pass is another one, and all that the option changes is how it is drawn. Of 100 examples
# of which the first 80 of a shuffled data set are for training, most of the other 20 for validation are among those for
# training, and no accuracy of unseen examples is measured. There is no warning. It is the same with and without a seed.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
npm install --silent --no-audit --no-fund --prefix "$directory" @tensorflow/tfjs-core@4.22.0 \
    @tensorflow/tfjs-backend-cpu@4.22.0 @tensorflow/tfjs-data@4.22.0 seedrandom@3.0.5
cat > run.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-backend-cpu";
import * as data from "@tensorflow/tfjs-data";

console.log("TensorFlow.js", tf.version_core);
const [all, training] = [100, 80];
const examples = data.array(Array.from({ length: all }, (_, place) => place));
for (const seed of ["1", "2", undefined]) {
  const shuffled = examples.shuffle(all, seed, false);
  const [first, second] = [await shuffled.toArray(), await shuffled.toArray()];
  console.log(`seed ${seed}: one pass begins with`, first.slice(0, 5), "the next one with", second.slice(0, 5));
  assert.notDeepEqual(first, second);
  for (const pass of [first, second]) assert.equal(new Set(pass).size, all);

  const seen = new Set(await shuffled.take(training).toArray());
  const held = await shuffled.skip(training).toArray();
  const both = held.filter((example) => seen.has(example)).length;
  console.log(`seed ${seed}: ${both} of ${held.length} examples for validation are in training, expected 0`);
  assert(held.length === all - training && both > 0);
}
JAVASCRIPT
node run.mjs
