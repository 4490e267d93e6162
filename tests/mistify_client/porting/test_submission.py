from mistify_client.porting.submission import SUBMISSION, attach
from mistify_client.rpc.porting import PortingClient


def test_a_power_cut_loses_no_job(service, tmp_path, synced):
    """Its key is on the disk, and so is the name of the file that has it."""
    with PortingClient(service.address) as client:
        attach(client, "[1]", tmp_path, service.address)
    assert synced == [path.stat().st_ino for path in (tmp_path / SUBMISSION, tmp_path)]
