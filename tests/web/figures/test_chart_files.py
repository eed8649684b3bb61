"""Charts as files: the answer of a page that is asked for one, and the same strokes as on the page."""

import csv
import re
from xml.etree import ElementTree

import pytest
from starlette.datastructures import QueryParams
from starlette.testclient import TestClient

from fedchain.web.app import FOLDER
from fedchain.web.charts import line_chart
from fedchain.web.figures.chart_files import STROKES, chart_csv, others_in, query_of
from tests.support.web.pages import chain as chain
from tests.support.web.pages import client as client
from tests.support.web.pages import run as run


def test_a_page_gives_its_chart_as_all_values_of_the_part_that_is_shown(client: TestClient) -> None:
    answer = client.get("/run/rounds?file=accuracy.csv&accuracy.first=3&accuracy.last=4")
    assert answer.text.splitlines() == [
        'round,"members\' own test sets, mean (fraction)",whole test set (fraction)',
        "3,0.8,0.4",
        "4,0.85,0.425",
    ]
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="accuracy.csv"'
    assert client.get("/compare?file=accuracy-on-the-whole-test-set.csv").text.splitlines()[-1] == "5,0.4375"


def test_a_page_gives_its_chart_as_a_picture_that_is_whole(client: TestClient) -> None:
    answer = client.get("/run/?file=accuracy.svg&accuracy.log=on")
    root = ElementTree.fromstring(answer.text)
    assert answer.headers["content-type"] == "image/svg+xml"
    texts = [item.text for item in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"accuracy", "whole test set", "100 %", "10 %", "round"} <= set(texts)
    assert len(list(root.iter("{http://www.w3.org/2000/svg}polyline"))) == 2
    assert "href" not in answer.text


@pytest.mark.parametrize("name", ["accuracy.png", "loss.svg", "accuracy", "", 'accuracy.svg"; x='])
def test_a_file_that_a_page_does_not_have_is_not_found(client: TestClient, name: str) -> None:
    answer = client.get("/run/rounds", params={"file": name})
    assert answer.status_code == 404
    assert "content-disposition" not in answer.headers


def test_a_file_is_not_kept_in_the_place_of_the_page(client: TestClient) -> None:
    assert client.get("/run/rounds?file=accuracy.csv").text == client.get("/run/rounds?file=accuracy.csv").text
    assert client.get("/run/rounds").headers["content-type"] == "text/html; charset=utf-8"


def test_all_points_are_in_the_file_where_the_picture_has_some() -> None:
    chart = line_chart(
        "a", [(str(line), [(float(x), x / 3) for x in range(1000)]) for line in range(9)], x_name="height"
    )
    assert chart is not None
    lines = chart_csv(chart).splitlines()
    assert len(chart.lines[0].points.split()) < 1000 == len(lines) - 1
    assert lines[0].split(",") == ["height", *map(str, range(9))]
    assert [float(value) for value in lines[-1].split(",")] == [999.0, *[333.0] * 9]


def test_an_address_keeps_what_is_about_other_things() -> None:
    chart = line_chart("a", [("b", [(1.0, 1.0)])], x_name="round")
    assert chart is not None
    question = QueryParams("chain=x&chain=y&a.first=3&ab.first=4")
    assert others_in(question, chart) == [("chain", "x"), ("chain", "y"), ("ab.first", "4")]
    assert query_of(question, chart) == "?chain=x&chain=y&ab.first=4"
    assert query_of(question, chart, "svg") == "?chain=x&chain=y&a.first=3&ab.first=4&file=a.svg"


def test_strokes_are_those_of_the_pages() -> None:
    style = (FOLDER / "static" / "explorer.css").read_text(encoding="utf-8")
    for number, (colour, dashes) in enumerate(STROKES):
        assert f"--c{number}: {colour};" in style.partition("prefers-color-scheme")[0]
        found = re.search(
            rf"\.line\.s{number} {{ stroke: var\(--c{number}\);(?: stroke-dasharray: ([\d ]+);)? }}", style
        )
        assert found is not None
        assert (found[1] or "") == dashes


@pytest.mark.parametrize("begin", ["=", "+", "-", "@"])
def test_a_name_is_no_formula(begin: str) -> None:
    chart = line_chart("a", [(f'{begin}HYPERLINK("x")', [(1.0, 2.0)])], x_name="round")
    assert chart is not None
    (_, name), _ = csv.reader(chart_csv(chart).splitlines())
    assert name == f'\'{begin}HYPERLINK("x")'


def test_an_area_is_in_the_file_with_both_limits() -> None:
    areas = [("all", [(1.0, 0.25, 1.0), (2.0, 0.5, 0.75)])]
    chart = line_chart("a", [("mean", [(1.0, 0.5), (2.0, 0.6)])], x_name="round", unit="%", areas=areas)
    assert chart is not None
    assert chart_csv(chart).splitlines() == [
        'round,mean (fraction),"all, lowest (fraction)","all, highest (fraction)"',
        "1,0.5,0.25,1.0",
        "2,0.6,0.5,0.75",
    ]
