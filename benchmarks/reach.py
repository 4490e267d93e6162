"""Goals that this machine has in reach, by the plan of a server."""

import json
import sys
from collections.abc import Iterator, Sequence

from mistify_client.rpc.porting import PortingClient


def within_reach(configs: Sequence[dict[str, object]], client: PortingClient) -> Iterator[dict[str, object]]:
    """Yield the configs that a network can meet on this machine, by the server's plan."""
    beyond = {limit.goal: limit for limit in client.plan(json.dumps(configs)).out_of_reach}
    for config in configs:
        if limit := beyond.get(str(config["id"])):
            print(limit.goal, f"out of reach, the nearest is {limit.nearest}", file=sys.stderr, flush=True)
        else:
            yield config
