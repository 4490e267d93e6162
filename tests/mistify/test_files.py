import json

from mistify.files import write_json


def test_write_json_leaves_nothing_else(tmp_path):
    write_json(tmp_path / "report.json", {"a": 1})
    write_json(tmp_path / "report.json", {"a": 2})
    assert json.loads((tmp_path / "report.json").read_text()) == {"a": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
