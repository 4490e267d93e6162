from mistify_client.porting.submission import SUBMISSION, attach
from mistify_client.rpc.porting import PortingClient


def test_a_power_cut_does_not_lose_the_job(service, tmp_path, synced):
    """Both the file with the key and its directory entry have been synced."""
    with PortingClient(service.address) as client:
        attach(client, "[1]", tmp_path, service.address)
    assert synced == [path.stat().st_ino for path in (tmp_path / SUBMISSION, tmp_path)]
