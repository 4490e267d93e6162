#!/usr/bin/env bash
# @huggingface/tokenizers 0.2.0 splits texts in one way, whatever the `behavior` of a pre-tokenizer says.
#
# Expected: the library for JavaScript reads the `tokenizer.json` of the library for Python and gives the same tokens:
# "removed" drops what the text is split at, "merged_with_previous" and "merged_with_next" keep it at a neighbour,
# "contiguous" keeps runs together, and `invert` keeps what is found instead of what is between.
# Observed: "Split" with a string isolates each separator and "Punctuation" keeps runs together, whatever their
# behaviour; the latter is not even its default. With `invert`, the rest of the text is lost: of "hello world" split at
# "l", three times "l" remain. There is no warning.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tokenizers==0.23.3
cd "$directory"
npm install --silent --no-audit --no-fund --prefix "$directory" @huggingface/tokenizers@0.2.0
cat > encode.mjs <<'JAVASCRIPT'
import { readFileSync } from "node:fs";
import { Tokenizer } from "@huggingface/tokenizers";

const tokenizer = new Tokenizer(JSON.parse(readFileSync("tokenizer.json", "utf8")), {});
const texts = JSON.parse(readFileSync("texts.json", "utf8"));
console.log(JSON.stringify(texts.map((text) => tokenizer.encode(text).tokens)));
JAVASCRIPT
"$directory/venv/bin/python" - <<'PYTHON'
import json
import subprocess
from importlib.metadata import version
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Punctuation, Split

package = json.loads(Path("node_modules/@huggingface/tokenizers/package.json").read_text())
print(f"tokenizers {version('tokenizers')}, {package['name']} {package['version']}")


def both(tokenizer, *texts):
    """Return the tokens in Python and in JavaScript, of the same file."""
    tokenizer.save("tokenizer.json")
    Path("texts.json").write_text(json.dumps(texts))
    result = subprocess.run(["node", "encode.mjs"], check=True, capture_output=True, text=True)
    by_javascript = json.loads(result.stdout)
    by_python = [tokenizer.encode(text).tokens for text in texts]
    for text, first, second in zip(texts, by_python, by_javascript):
        print(f"  {text!r}: Python {first}, JavaScript {second}")
    return by_python, by_javascript


letters = sorted(set("hello world,!"))
merges = [("l", "l"), ("l", "o"), ("e", "l"), (",", ","), ("o", ","), (",", " ")]
vocabulary = {piece: place for place, piece in enumerate([*letters, *("".join(pair) for pair in merges)])}


def tokenizer(pre_tokenizer):
    result = Tokenizer(BPE(vocabulary, merges))
    result.pre_tokenizer = pre_tokenizer
    return result


for kind, text in ((lambda behavior: Split("l", behavior), "hello world"), (Punctuation, "hello,, world")):
    equal, results = set(), []
    for behavior in ("isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"):
        print(kind(behavior))
        (by_python,), (by_javascript,) = both(tokenizer(kind(behavior)), text)
        results.append(by_javascript)
        if by_python == by_javascript:
            equal.add(behavior)
    assert all(result == results[0] for result in results)
    assert equal == ({"contiguous"} if kind is Punctuation else {"isolated"})
print("Split with invert")
(by_python,), (by_javascript,) = both(tokenizer(Split("l", "isolated", invert=True)), "hello world")
assert "".join(by_python) == "hello world" and by_javascript == ["l", "l", "l"]
PYTHON
