"""Latency tables: which entries are kept, and which are measured again."""

import json

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.machine import machine, runtime
from mistify.package.block_files import BlockFiles
from mistify.package.manifest import NETWORK
from mistify_client.assembly.executions import Execution
from mistify_client.subnets.block_latencies import LatencyTable, latency_table
from tests.mistify_client.subnets import spaces

NAME = "latency-interpreter-1.json"


def measured(own, **changes):
    """Return the table and the progress messages."""
    lines = []
    settings = {"threads": 1, "execution": Execution.INTERPRETER, **changes}
    table = latency_table(own.files, own.store, own.state, seconds=1e-6, on_progress=lines.append, **settings)
    return table, lines


def test_the_latency_of_a_subnet_is_the_sum_over_its_blocks(elastic):
    own = elastic()
    assert own.table.latencies_ms.keys() == {one.content.sha256 for one in own.store.variants}
    assert all(latency > 0 for latency in own.table.latencies_ms.values())
    subnet = own.space.original
    assert own.table.latency_ms(subnet) == pytest.approx(sum(own.table.of(one) for one in subnet))


def test_measured_blocks_are_not_measured_again(elastic):
    own = elastic()
    for one in own.store.variants:
        (own.directory / one.file).unlink()
    assert measured(own) == (own.table, [])


def test_latencies_of_measured_blocks_are_kept(elastic):
    own = elastic()
    new, *others = own.store.variants
    content = json.loads((own.state / NAME).read_text())
    del content["latencies_ms"][new.content.sha256]
    (own.state / NAME).write_text(json.dumps(content))
    table, lines = measured(own)
    assert lines == ["measuring 1 block"]
    assert table.has(new)
    assert {table.of(one) for one in others} == {own.table.of(one) for one in others}


def test_latencies_of_new_blocks_are_scaled_to_earlier_conditions(elastic):
    own = elastic()
    new, *others = own.store.variants
    content = json.loads((own.state / NAME).read_text())
    # As if the device had been a thousand times slower during the earlier measurement.
    content["latencies_ms"] = {one.content.sha256: 1000 * own.table.of(one) for one in others}
    (own.state / NAME).write_text(json.dumps(content))
    table, lines = measured(own)
    assert lines == ["measuring 1 block"]
    assert 30 < table.of(new) / own.table.of(new) < 30_000
    assert {table.of(one) for one in others} == set(content["latencies_ms"].values())


@pytest.mark.parametrize("field", ["runtime", "machine"])
def test_all_blocks_are_measured_again_on_another_device(elastic, field):
    own = elastic()
    content = json.loads((own.state / NAME).read_text())
    old = dict.fromkeys(content["latencies_ms"], 1000000.0)
    (own.state / NAME).write_text(json.dumps(content | {field: "another", "latencies_ms": old}))
    table, lines = measured(own)
    assert lines == ["measuring 15 blocks"]
    assert max(table.latencies_ms.values()) < 1e6
    assert LatencyTable.model_validate_json((own.state / NAME).read_text()) == table


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format_version": 2}'])
def test_an_unreadable_table_is_measured_again(elastic, content):
    own = elastic()
    (own.state / NAME).write_text(content)
    assert measured(own)[1] == ["measuring 15 blocks"]


@pytest.mark.parametrize("changes", [{"threads": 2}, {"execution": Execution.COMPILED}])
def test_each_execution_has_its_own_table(elastic, changes):
    own = elastic()
    table, lines = measured(own, **changes)
    assert lines
    assert (table.threads, table.execution) == (
        changes.get("threads", 1),
        changes.get("execution", Execution.INTERPRETER),
    )
    assert measured(own) == (own.table, [])
    assert measured(own, **changes) == (table, [])


def test_a_damaged_block_is_refused_by_name(elastic):
    own = elastic()
    (own.state / NAME).unlink()
    path = own.directory / "head.tflite"
    path.write_bytes(b"")
    with pytest.raises(MistifyError) as caught:
        measured(own)
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE
    assert caught.value.problems[0].place == str(path)
    assert not (own.state / NAME).exists()


@pytest.mark.parametrize(("shipped_ms", "handover_ms"), [(5.0, 0.5), (4.0, 1.0), (7.0, 0.0)])
def test_the_handover_time_is_the_overhead_of_a_chain_over_one_network(tmp_path, shipped_ms, handover_ms):
    """Blocks take 1, 2 and 3 ms in a chain, and less in one network, with these or other blocks."""
    store = spaces.store(blocks=3, shrunk=1, merged=())
    first, second, third, *_, last_shrunk = store.variants
    shipped = spaces.variant(NETWORK, 0, 3).model_copy(update={"file": NETWORK})
    served = tuple(one.file for one in (first, second, third))
    store = store.model_copy(update={"variants": (*store.variants, shipped), "served": served})
    chained_ms = dict(zip(store.variants, (1.0, 2.0, 3.0, 0.5, 0.5, 1.5, shipped_ms), strict=True))
    content = {
        "machine": machine(),
        "runtime": runtime(),
        "execution": "interpreter",
        "threads": 1,
        "latencies_ms": {one.content.sha256: ms for one, ms in chained_ms.items()},
    }
    (tmp_path / NAME).write_text(json.dumps(content))
    with BlockFiles(tmp_path) as files:
        table = latency_table(files, store, tmp_path, 1)
    assert table.handover_ms == handover_ms
    assert table.latency_ms([first, second, third]) == pytest.approx(6 - 2 * handover_ms)
    assert table.latency_ms([first, second, last_shrunk]) == pytest.approx(4.5 - 2 * handover_ms)
    assert table.latency_ms([shipped]) == shipped_ms


def test_latencies_are_never_negative(elastic):
    own = elastic()
    table = own.table.model_copy(update={"handover_ms": 1e3})
    assert all(table.of(one) > 0 for one in own.store.variants)
