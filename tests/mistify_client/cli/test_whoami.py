"""The command `whoami`."""

from mistify.errors import ErrorCode, MistifyError
from mistify.quotas import CallerStatus, Quota, Usage


def test_whoami_shows_use_and_limits(mistify, service):
    limits, usage = Quota(uploads=5_000_000_000, jobs=1_000), Usage(uploads=1_200_000_000, jobs=2, workers=1)
    service.fake.status = CallerStatus("ci", ("read", "submit"), limits, usage)
    result = mistify("whoami", "--server", service.address)
    assert result.exit_code == 0
    first, _, _, *rows = result.stdout.splitlines()
    assert first == "ci: read, submit"
    assert [row.split() for row in rows] == [
        ["uploads", "1.2GB", "5GB"],
        ["unfinished", "jobs", "2", "1,000"],
        ["steps", "in", "progress", "1", "none"],
    ]
    service.fake.status = CallerStatus("local", ("admin",), Quota(), Usage(), "vision")
    shown = mistify("whoami", "--server", service.address).stdout
    assert shown.startswith("local of the tenant vision: admin\n")
    assert "0B" in shown


def test_whoami_reports_a_refused_token(mistify, service):
    service.fake.error = MistifyError(ErrorCode.UNAUTHENTICATED, "the token is wrong")
    result = mistify("whoami", "--server", service.address)
    assert (result.exit_code, "the token is wrong" in result.stderr) == (5, True)
