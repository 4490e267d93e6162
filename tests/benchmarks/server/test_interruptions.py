"""Packages that differ from those of an undisturbed job are told apart by field and file."""

from benchmarks.server.interruptions import contents_of, differing, fields_of
from mistify.jobs.job import Goal, PackageFile
from mistify.jobs.package_spec import PackageSpec


def test_fields_of_a_manifest_are_its_leaves_by_place() -> None:
    manifest = {"achieved": {"FLOP": 2, "latency": 0.5}, "inputs": [{"shape": [1, 8]}], "branches": []}
    assert dict(fields_of(manifest)) == {
        "['achieved']['FLOP']": 2,
        "['achieved']['latency']": 0.5,
        "['inputs'][0]['shape'][0]": 1,
        "['inputs'][0]['shape'][1]": 8,
        "['branches']": [],
    }


def test_names_times_and_signatures_of_jobs_may_differ_but_no_networks() -> None:
    def contents(job: str, network: str = "1") -> object:
        digests = {"manifest.json": job, "signature.json": job, "serve.tflite": network}
        files = tuple(PackageFile(name, 1, digest) for name, digest in digests.items())
        goal = Goal("a", 0, PackageSpec({"flops": 1.0}), files=files)
        return contents_of(goal, {"job": job, "created": job, "latency": {"median_ms": job}, "accuracy": 0.5})

    assert contents("first") == contents("second")
    assert contents("first") != contents("second", "2")


def test_everything_that_differs_is_named() -> None:
    expected = {("a", "serve.tflite"): "11", ("a", "manifest.json['x']"): 1, ("b", "train.tflite"): "22"}
    contents = {("a", "serve.tflite"): "11", ("a", "manifest.json['x']"): 2, ("a", "exits.json"): "33"}
    assert list(differing(contents, expected)) == [
        "a/exits.json: 33; undisturbed: missing",
        "a/manifest.json['x']: 2; undisturbed: 1",
        "b/train.tflite: missing; undisturbed: 22",
    ]
    assert not list(differing(expected, dict(expected)))
