"""A job's report as parameters, metrics and tags of MLflow.

Figures have the names of `report.json`, except that the score is named after its metric, and characters that
MLflow does not allow are replaced.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from mistify.config.reading import read_batch
from mistify_client.mlflow.recorded_job import RecordedJob

#: Tags by which the runs of a job and of its goals are found again.
JOB, GOAL = "mistify.job", "mistify.goal"

_STATE: Final = "mistify.state"
_TAGS: Final = "mistify.tags"
_OWN_TAGS: Final = ("mistify.", "mlflow.")

_USER, _NOTE = "mlflow.user", "mlflow.note.content"
_SOURCE, _KIND = "mlflow.source.name", "mlflow.source.type"

_NOT_ALLOWED: Final = re.compile(r"[^\w.\- ]")

#: Figures of sources, in reports.
_OF_SOURCE: Final = ("flops", "params", "memory_bytes", "size_bytes", "steps")


def run_name(job: Mapping[str, Any]) -> str:
    """Return the name of a job's run."""
    return str(job.get("name") or job["job"])


def job_tags(job: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of a job's run; its own tags of the form NAME=VALUE are tags of their own."""
    words = [str(word) for word in job.get("tags", ())]
    return {
        **_named_tags(words),
        JOB: job["job"],
        _STATE: job_state(job),
        _TAGS: " ".join(words),
        _SOURCE: "mistify",
        _KIND: "JOB",
        _NOTE: str(job.get("reason", "")),
        **({_USER: job["submitted_by"]} if job.get("submitted_by") else {}),
    }


def former_tags(run_tags: Mapping[str, str], job: Mapping[str, Any]) -> set[str]:
    """Return the tags of a job's run that stand for tags that the job no longer has."""
    return _named_tags(run_tags.get(_TAGS, "").split()).keys() - job_tags(job).keys()


def job_metrics(job: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of a job's run: goals, seconds by activity, and the figures of its sources."""
    goals = job["goals"]
    metrics = {
        "goals": len(goals),
        "goals_met": sum(goal["met"] for goal in goals),
        "seconds": job["seconds"],
        **{f"seconds/{_part(activity)}": seconds for activity, seconds in job["spent"].items()},
    }
    for source in job["sources"]:
        place = f"source-{source['batch']}" if len(job["sources"]) > 1 else "source"
        named = {
            source["metric"]: source["accuracy"],
            f"tuned_{source['metric']}": source["tuned_accuracy"],
            **{name: source[name] for name in (*_OF_SOURCE, *job["metrics"])},
            **_scores(source["outputs"]),
            **{f"tuned_{name}": value for name, value in _scores(source["tuned_outputs"]).items()},
        }
        metrics |= {f"{place}/{name}": value for name, value in named.items()}
    return _known(metrics)


def goal_tags(job: Mapping[str, Any], goal: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of a goal's run; its description has all sentences about the goal."""
    parts = {
        "": goal["reason"],
        "Precision: ": goal["precision_choice"],
        "Algorithm: ": goal["choice"],
        "Forecast: ": "" if goal["achieved"]["accuracy"] is not None else goal["warning"],
        "Note: ": goal["note"],
    }
    return {
        JOB: job["job"],
        GOAL: goal["id"],
        _STATE: goal_state(goal),
        "mistify.latency_judged_by": goal["latency_judged_by"] or "",
        _SOURCE: "mistify",
        _KIND: "JOB",
        _NOTE: "\n\n".join(f"{title}{text}" for title, text in parts.items() if text),
        **({_USER: job["submitted_by"]} if job.get("submitted_by") else {}),
    }


def goal_params(
    job: Mapping[str, Any], goal: Mapping[str, Any], settings: Mapping[int, Mapping[str, object]]
) -> dict[str, str]:
    """Return the parameters of a goal's run.

    Args:
        settings: Batch -> settings of its algorithm; without batches whose settings are unknown.
    """
    batch = goal["batch"]
    models = {source["batch"]: source["model"] for source in job["sources"]}
    params = {
        "model": models.get(batch),
        "algorithm": goal["algorithm"],
        "parent": goal["parent"],
        "precision": goal["quantization"]["precision"],
        "inputs": goal["quantization"]["inputs"],
        "hardware": goal["hardware"],
        "threads": goal["threads"],
        **{f"limit/{_part(axis)}": limit for axis, limit in goal["budget"].items()},
        **{
            f"target/{_part(target['output'] or 'all')}/{_part(target['metric'])}": target["value"]
            for target in goal["targets"]
        },
        **{name: (goal["compression"] or {}).get(name) for name in ("sparsity", "clusters")},
        **{name: goal[name] for name in ("exits", "task")},
    }
    if batch in settings:
        own = settings[batch]
        params["seed"] = own.get("seed", 0)
        params |= {f"settings/{_part(name)}": value for name, value in own.items() if name != "seed"}
    return {name: _text(value) for name, value in params.items() if value is not None}


def goal_metrics(goal: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of a goal's run: of its package, of each output and branch, and of the work."""
    metric = goal["achieved"]["metric"]
    metrics = _renamed(goal["achieved"], metric) | _scores(goal["outputs"])
    for number, branch in enumerate(goal["branches"]):
        metrics |= {f"branch-{number}/{name}": value for name, value in _renamed(branch, metric).items()}
    return _known({**metrics, "seconds": goal["seconds"], "steps": goal["steps"]})


def goal_state(goal: Mapping[str, Any]) -> str:
    """Return the state of a goal; reports of earlier versions only say whether it is met."""
    with_package = "unmet" if goal["achieved"]["accuracy"] is not None else "failed"
    return str(goal.get("state") or ("met" if goal["met"] else with_package))


def job_state(job: Mapping[str, Any]) -> str:
    """Return the state of a job; reports of earlier versions were written at its end."""
    return str(job.get("state") or "done")


def settings_by_batch(job: RecordedJob) -> dict[int, Mapping[str, object]]:
    """Return the settings of each batch's algorithm, which its goals share, as far as they are known."""
    if job.config is None:
        return {}
    reading = read_batch(job.config, server_knows_more=True)
    settings = {config.id: config.algorithm.config for config in reading.configs.values()}
    return {goal["batch"]: settings[goal["id"]] for goal in job.report["goals"] if goal["id"] in settings}


def metric_name(name: str) -> str:
    """Return a name whose parts, separated by `/`, MLflow allows."""
    return "/".join(map(_part, name.split("/")))


def _named_tags(words: Iterable[str]) -> dict[str, str]:
    named = dict(word.split("=", 1) for word in words if "=" in word)
    return {
        _part(name): value
        for name, value in named.items()
        if name and not name.casefold().startswith(_OWN_TAGS)
    }


def _renamed(figures: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """Return the figures of a package, with its score named after its metric."""
    names = {"accuracy": metric, "accuracy_change": f"{metric}_change"}
    return {names.get(name, name): value for name, value in figures.items() if name != "metric"}


def _scores(outputs: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    return {f"outputs/{_part(score['output'])}/{score['metric']}": score["value"] for score in outputs}


def _known(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {metric_name(name): float(value) for name, value in _numbers(metrics)}


def _numbers(metrics: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in metrics.items() if value is not None)


def _part(name: str) -> str:
    """Return a part of a name with characters that MLflow allows."""
    allowed = _NOT_ALLOWED.sub("_", name.replace("@", "."))
    return allowed if allowed.strip(".") else "_"


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
