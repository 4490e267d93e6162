"""The run-time monitor, which keeps a package within its targets while conditions change (paper 6).

    sensors, latency  ->  policy  ->  switchboard          the foreground path: which option runs
                          policy  ->  replacement -> swap  the background path: a new package from the server

`daemon.py` has the loop that drives both; `mistify_client.cli.monitor` has the commands.
"""
