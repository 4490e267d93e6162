#!/usr/bin/env bash
# pyarrow 26.0.1 loses rows with NaN when it filters a Parquet file, even if NaN is what the filter looks for.
#
# Expected: a filter selects the same rows of a Parquet file as of the table that was written. "When looking for NaN
# values, min and max should be ignored", says the Parquet format (parquet.thrift), as the statistics of a column leave
# out NaN.
# Observed: a group of rows is skipped, or kept as a whole, by the statistics alone: with 1 and NaN, these say that all
# numbers are 1. So `x != 1`, `~(x < 2)` and `is_nan(x)` find no rows, without a warning. `~(x < 3)` also loses the NaN
# of a group with other numbers below 3. Filters that look for outliers or broken measurements, or leave out the usual
# value, lose them. Polars 2.1.0 finds the rows in the same file.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet pyarrow==26.0.1 polars==2.1.0
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
import math

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

print("pyarrow", pa.__version__, "polars", pl.__version__)

x, polars_x = pc.field("x"), pl.col("x")
FILTERS = {
    "x != 1": (x != 1, polars_x != 1, lambda value: value != 1),
    "not x < 2": (~(x < 2), ~(polars_x < 2), lambda value: not value < 2),
    "not x < 3": (~(x < 3), ~(polars_x < 3), lambda value: not value < 3),
    "x is NaN": (x.is_nan(), polars_x.is_nan(), math.isnan),
}
for values, losing in (
    ([1.0, math.nan], {"x != 1", "not x < 2", "not x < 3", "x is NaN"}),
    ([1.0, 2.0, math.nan], {"not x < 3"}),
):
    table = pa.table({"x": values, "row": range(len(values))})
    pq.write_table(table, "rows.parquet")
    statistics = pq.read_metadata("rows.parquet").row_group(0).column(0).statistics
    print(f"{values}: statistics from {statistics.min} to {statistics.max}")
    for name, (of_arrow, of_polars, exact) in FILTERS.items():
        right = [row for row, value in enumerate(values) if exact(value)]
        in_memory = table.filter(of_arrow)["row"].to_pylist()
        by_dataset = ds.dataset("rows.parquet").to_table(filter=of_arrow)["row"].to_pylist()
        by_table = pq.read_table("rows.parquet", filters=of_arrow)["row"].to_pylist()
        by_polars = pl.scan_parquet("rows.parquet").filter(of_polars).collect()["row"].to_list()
        print(f"  {name}: rows {by_dataset}, in memory {in_memory}, by Polars {by_polars}")
        assert by_table == by_dataset and in_memory == right
        assert (by_dataset != right) == (name in losing)
        # Polars orders NaN above all numbers, so that it is not below them either.
        assert by_polars == right
PYTHON
