#!/usr/bin/env bash
# @huggingface/tokenizers 0.2.0 splits words at accents, so that a browser feeds other tokens than the training did.
#
# Expected: the library for JavaScript reads the `tokenizer.json` of the library for Python, which is in Rust, and gives
# the same tokens, or refuses parts that it does not know, as it does for `UnicodeScripts`.
# Observed: the pre-tokenizer "Whitespace" takes letters outside of ASCII for punctuation: a dictionary of whole words
# finds "naïve" in Python, and in JavaScript there are "na", "ï" and "ve". "WhitespaceSplit" and "BertPreTokenizer" are
# right. There is no warning; English texts show no difference.
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
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import BertPreTokenizer, Whitespace, WhitespaceSplit

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


words = ["[UNK]", "a", "naive", "naïve", "café", "na", "ve", "caf", "ï", "é", "über", "weiß", "ber", "ü"]


def tokenizer(pre_tokenizer):
    result = Tokenizer(WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]"))
    result.pre_tokenizer = pre_tokenizer
    return result


TEXTS = ["a naive café", "a naïve café", "über"]
for pre_tokenizer in (WhitespaceSplit(), BertPreTokenizer(), Whitespace()):
    print(type(pre_tokenizer).__name__)
    by_python, by_javascript = both(tokenizer(pre_tokenizer), *TEXTS)
    if isinstance(pre_tokenizer, Whitespace):
        assert by_python[1] == ["a", "naïve", "café"] and by_python[2] == ["über"]
        assert by_javascript[1] == ["a", "na", "ï", "ve", "caf", "é"] and by_javascript[2] == ["ü", "ber"]
    else:
        assert by_python == by_javascript
PYTHON
