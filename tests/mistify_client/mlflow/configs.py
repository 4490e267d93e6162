"""The config of the job of the tests."""

import json

CONFIG = json.dumps(
    [
        {
            "id": name,
            "model": "digits-resnet",
            "dataset": {"train": "builtin:digits-train", "test": "builtin:digits-test"},
            "algorithm": {"name": "morphnet", "config": {"seed": 7, "tune_steps": 30}},
            "adaptation_goal": {"FLOP": limit},
        }
        for name, limit in (("half", "0.5x"), ("tenth", "0.1x"))
    ]
)
