"""gRPC gets each certificate of a server once, however many connections are made."""

from concurrent.futures import ThreadPoolExecutor

from mistify.wire.listening import Certificate, _RenewedCertificate


def test_a_certificate_is_new_only_once_after_its_files_have_changed(tmp_path):
    for name in ("chain.pem", "key.pem"):
        (tmp_path / name).write_text("old")
    renewed = _RenewedCertificate(Certificate(tmp_path / "chain.pem", tmp_path / "key.pem"))
    assert [renewed() for _ in range(3)] == [None] * 3
    (tmp_path / "key.pem").unlink()
    assert renewed() is None
    (tmp_path / "key.pem").write_text("new")
    with ThreadPoolExecutor(8) as connections:
        answers = list(connections.map(lambda _: renewed(), range(64)))
    assert sum(answer is not None for answer in answers) == 1
