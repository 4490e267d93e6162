"""Pictures of trade-offs contain all their points."""

from dataclasses import replace

import numpy as np
import pytest

from mistify.config.data.metric import Metric
from mistify.costs.budget import FLOPS
from mistify.jobs.tradeoffs import Point, TradeOff

pytest.importorskip("matplotlib")

from mistify_client.porting.pictures import picture, write_pictures

POINTS = [
    Point("half", 500.0, 0.8, True),
    Point("$\\frac{tenth}$", 100.0, 0.6, False),
    Point("third", 300.0, 0.7, True),
    Point("worse", 400.0, 0.65, True),
]
TRADE_OFF = TradeOff(FLOPS, "multiply-adds", Metric.ACCURACY, POINTS, [100.0, 450.0], (1000.0, 0.9))


def scattered(figure):
    (axes,) = figure.axes
    return {
        drawn.get_label(): sorted(map(tuple, np.asarray(drawn.get_offsets()).tolist()))
        for drawn in axes.collections
    }


def lines(figure, label):
    (axes,) = figure.axes
    return [line for line in axes.lines if line.get_label() == label]


def test_all_packages_limits_and_the_source_are_drawn():
    figure = picture(TRADE_OFF, "job-1")
    assert scattered(figure) == {
        "met": [(300.0, 0.7), (400.0, 0.65), (500.0, 0.8)],
        "not met": [(100.0, 0.6)],
        "source": [(1000.0, 0.9)],
    }
    (best,) = lines(figure, "best")
    assert (list(best.get_xdata()), list(best.get_ydata())) == ([100.0, 300.0, 500.0], [0.6, 0.7, 0.8])
    (axes,) = figure.axes
    vertical = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == "--"]
    assert vertical == [100.0, 450.0]
    assert len(lines(figure, "limit of a goal")) == 1
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("multiply-adds", "accuracy", "job-1")
    assert {text.get_text() for text in axes.texts} == {point.goal for point in POINTS}


def test_names_are_not_parsed_as_formulas_and_omitted_among_many_points(tmp_path):
    (path,) = write_pictures([TRADE_OFF], "$\\job", tmp_path)
    assert path.name == "flops.png"
    (other,) = write_pictures(
        [replace(TRADE_OFF, batch=1), replace(TRADE_OFF, batch=1, output="a")], "job", tmp_path
    )
    assert other.name == "flops-1.png"
    many = TradeOff(FLOPS, "multiply-adds", Metric.ACCURACY, POINTS * 6, [], None)
    figure = picture(many, "job")
    assert list(figure.axes[0].texts) == []
    assert [len(points) for points in scattered(figure).values()] == [18, 6]
    assert set(scattered(figure)) == {"met", "not met"}
