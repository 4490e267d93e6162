"""Costs as percentages of the source's: metrics of plug-ins, and packages in other precisions."""

from dataclasses import replace

from mistify.jobs.formatting import shares
from tests.mistify_client.porting.shown_jobs import plugged_in


def test_percentages_include_metrics_of_plug_ins(service):
    job = plugged_in(service.fake.job)
    costs = {"carbon_g": 3.5, "1/frames_per_s@pi": 0.01, "flops": 1.0}
    source = replace(job.sources[0], costs={**job.sources[0].costs, "flops": 2.0})
    assert shares(costs, source) == "multiply-adds 50%, predicted speed on pi 500%, carbon 50%"


def test_percentages_refer_to_the_precision_of_the_package(service):
    source = replace(service.fake.job.sources[0], costs={"flops": 2.0, "memory_bytes": 100.0})
    costs = {"flops": 1.0, "memory_bytes": 50.0, "memory_bytes@int8": 13.0}
    assert shares(costs, source) == "multiply-adds 50%, memory in int8 13%"
    assert shares({**costs, "memory_bytes@float16": 25.0}, source) == "multiply-adds 50%, memory 50%"
