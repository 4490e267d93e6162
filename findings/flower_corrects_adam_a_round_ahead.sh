#!/usr/bin/env bash
# Flower 1.42.0 corrects the bias of FedAdam by the number of the next round, so that the first steps are too small.
#
# Expected: the server's step is corrected by sqrt(1 - beta_2**t) / (1 - beta_1**t) in round t, counted from 1, as in
# Adam (Kingma and Ba, section 2), which the comment in the code names: if all devices always move the weights by the
# same amount, each round moves them by `eta`, the server's learning rate, from the first on.
# Observed: the exponents are t + 1, while the moments are those of round t. The first round moves weights by 0.74
# `eta`, the second by 0.86, the fifth by 0.96, with the default betas, and there is no message. Federated training often
# has few rounds, and a learning rate from a paper or another library is not reached in the first of them.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet flwr==1.42.0 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
from importlib.metadata import version

import numpy as np
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.strategy import FedAdam

print("flwr", version("flwr"))
ETA, BETA_1, BETA_2, ROUNDS = 0.1, 0.9, 0.99, 8
weights = np.zeros(1)
strategy = FedAdam(
    initial_parameters=ndarrays_to_parameters([weights]), eta=ETA, beta_1=BETA_1, beta_2=BETA_2, tau=1e-12
)
first, second = 0.0, 0.0
for number in range(1, ROUNDS + 1):
    trained = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([weights - 1]), num_examples=1, metrics={})
    parameters, _ = strategy.aggregate_fit(number, [(None, trained)], [])
    (moved,) = parameters_to_ndarrays(parameters)
    step = float((weights - moved)[0])
    weights = moved

    first, second = BETA_1 * first + (1 - BETA_1), BETA_2 * second + (1 - BETA_2)
    rates = [ETA * np.sqrt(1 - BETA_2**t) / (1 - BETA_1**t) for t in (number, number + 1)]
    adam, ahead = (rate * first / np.sqrt(second) for rate in rates)
    print(f"round {number}: a step of {step:.4f}, by Adam {adam:.4f}")
    assert abs(adam - ETA) < 1e-6 and abs(step - ahead) < 1e-6 and step < 0.99 * adam
PYTHON
