"""The path from a goal to a current package, and the jobs to which goals are submitted."""

import json
from dataclasses import replace

from mistify.package.manifest import Manifest
from mistify.v1 import porting_pb2 as pb
from mistify_client.monitor.replacement.candidate import Trial
from mistify_client.monitor.replacement.ledger import Ledger, Phase
from mistify_client.runtime.versions import current, install, previous
from tests.mistify_client.monitor.adapting import held
from tests.mistify_client.monitor.replacement.conftest import SHORT, WHOLE_WAY, on_probation_ends
from tests.mistify_client.monitor.test_config import GOAL


def test_a_new_package_becomes_the_current_one_and_the_old_one_is_kept(site, package):
    site.ask()
    site.until("probation")
    assert site.entries.phases == WHOLE_WAY
    replacement = site.background.replacement
    assert site.goal == replacement.goal
    assert previous(package) == package
    assert not site.state.candidate.exists()


def test_the_reason_names_the_hardware_without_a_latency(site):
    site.config.goal.write_text(json.dumps({**GOAL, "hardware": "jetson-nano"}))
    site.ask()
    reason = site.until("submitting")["reason"]
    assert reason.startswith("no option meets the targets")
    assert reason.endswith("no latency for jetson-nano")


def test_the_first_goal_starts_a_job_that_later_goals_join(site, service):
    site.ask()
    site.until("probation")
    assert len(service.fake.requests_of(pb.SubmitBatchRequest)) == 1
    site.background.judge(0.0, True)
    on_probation_ends(site)
    site.ask(replace(SHORT, ratio=4.0), run_trial=lambda *_: Trial(0.1, 1.0, None))
    site.until("probation")
    (added,) = service.fake.requests_of(pb.AddGoalsRequest)
    assert added.job_id == "job-1"


def test_a_goal_joins_the_job_of_the_config(site, service):
    site.ask(job="job-1")
    site.until("probation")
    assert [request.job_id for request in service.fake.requests_of(pb.AddGoalsRequest)] == ["job-1"]
    assert service.fake.requests_of(pb.SubmitBatchRequest) == []


def test_a_removed_job_is_started_again_unless_the_config_names_it(site, service):
    site.ask()
    site.until("probation")
    on_probation_ends(site)
    service.fake.forgotten = True
    site.ask(replace(SHORT, ratio=4.0), run_trial=lambda *_: Trial(0.1, 1.0, None))
    site.until("probation")
    assert len(service.fake.requests_of(pb.SubmitBatchRequest)) == 2
    on_probation_ends(site)
    site.ask(replace(SHORT, ratio=8.0), job="job-9")
    assert "there is no job" in site.until("rejected")["reason"]


def test_the_same_goal_is_submitted_only_once(site, service):
    service.fake.fails = True
    site.ask()
    assert "no room" in site.until("rejected")["reason"]
    asked = len(service.fake.requests)
    site.ask()
    assert site.background.replacement.phase is Phase.REJECTED
    assert len(service.fake.requests) == asked
    service.fake.fails = False
    site.ask(replace(SHORT, ratio=4.0))
    site.until("probation")


def test_only_one_replacement_runs_at_a_time(site, service):
    with held(service.fake, "WatchJob"):
        first = site.ask()
        site.until("adapting")
        first.ask(replace(SHORT, ratio=4.0), Manifest.load(site.package))
        first.resume()
    site.until("probation")
    assert len(service.fake.requests_of(pb.SubmitBatchRequest)) == 1
    assert len(Ledger(site.state.replacement).requested) == 1


def test_a_new_package_is_installed_after_the_current_one(site, package, other):
    install(package, other)
    between = current(package)
    site.ask()
    site.until("probation")
    assert previous(package) == between
