#!/usr/bin/env bash
# micromlgen 1.1.28 writes code for microcontrollers that decides between two classes the wrong way round.
#
# Expected: the code that `port` writes predicts what scikit-learn predicts, up to rounding, as it does for three classes.
# Observed: a logistic regression of two classes returns the other class for every example: its one score is compared as
# that of class 0. A support vector machine of two classes subtracts the sum over its support vectors from the intercept
# of scikit-learn, which has the other sign since 0.22: it is shifted by twice the intercept. For the same reason
# `OneClassSVM` finds no outlier, wherever a point lies. There is no warning.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet micromlgen==1.1.28 scikit-learn==1.9.1 numpy==2.4.6 scipy==1.17.1
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

import micromlgen
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC, OneClassSVM

print(*(f"{name} {version(name)}" for name in ("micromlgen", "scikit-learn")))
generator = np.random.default_rng(0)
points, others = generator.normal(size=(300, 3)), generator.normal(size=(200, 3)).astype(np.float32)
two = (points[:, 0] + points[:, 1] ** 2 > 0.2).astype(int)
three = two + (points[:, 2] > 1)
HEADERS = "".join(f"#include <{name}>\n" for name in ("cmath", "cstdarg", "cstdint", "cstdio")) + "using namespace std;\n"


def predictions(model):
    """Return what the code of a model predicts for the other points, and what scikit-learn does."""
    code = micromlgen.port(model)
    kind = re.search(r"class (\w+)", code).group(1)
    main = f"int main() {{ Eloquent::ML::Port::{kind} model; float x[3];\n"
    main += 'while (scanf("%f %f %f", x, x + 1, x + 2) == 3) printf("%d\\n", (int)model.predict(x)); }\n'
    Path("program.cpp").write_text(HEADERS + code + main)
    subprocess.run(["c++", "-fpermissive", "-w", "-o", "program", "program.cpp"], check=True)
    lines = "\n".join(" ".join(map(str, point)) for point in others.tolist())
    result = subprocess.run(["./program"], input=lines, check=True, capture_output=True, text=True)
    return np.array(result.stdout.split(), dtype=int), model.predict(others)


def agreement(model, labels):
    by_code, right = predictions(model.fit(points, labels))
    share = (by_code == right).mean()
    print(f"{model}, {len(set(labels))} classes: {share:.0%} agree")
    return share


for model in (LogisticRegression(), SVC(gamma=0.5)):
    assert agreement(model, three) > 0.98
assert agreement(LogisticRegression(), two) < 0.02
assert agreement(SVC(gamma=0.5), two) < 0.9
by_code, right = predictions(OneClassSVM(gamma=0.5, nu=0.1).fit(points))
print(f"OneClassSVM: {(right == -1).sum()} outliers of scikit-learn, predictions of the code {set(by_code.tolist())}")
assert (right == -1).sum() > 10 and set(by_code.tolist()) == {1}
PYTHON
