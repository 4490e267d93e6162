"""Selection of the goals that a network can meet on this machine, according to a server's plan."""

import json
import sys
from collections.abc import Iterator, Sequence

from mistify_client.rpc.porting import PortingClient


def feasible(configs: Sequence[dict[str, object]], client: PortingClient) -> Iterator[dict[str, object]]:
    """Yield the configs with feasible goals on this machine; report the others on stderr."""
    infeasible = {limit.goal: limit for limit in client.plan(json.dumps(configs)).out_of_reach}
    for config in configs:
        if limit := infeasible.get(str(config["id"])):
            print(limit.goal, f"out of reach, the nearest is {limit.nearest}", file=sys.stderr, flush=True)
        else:
            yield config
