"""The page is whole in itself, holds the sweep's numbers, and lets no text become code."""

import base64
import copy
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from haloconv.flow.sweep_report import page
from haloconv.flow.sweep_report.page import build_page, page_content
from haloconv.flow.sweep_report.points import Sweep, read_sweep

ASSETS = Path(page.__file__).with_name("assets")
LIMIT = 5_000_000


class Reader(HTMLParser):
    """Tags with their attributes, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] | None = None
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside = {"script": self.scripts, "style": self.styles}.get(tag)
        if self.inside is not None:
            self.inside.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = None

    def handle_data(self, data: str) -> None:
        if self.inside is not None:
            self.inside[-1] += data


@pytest.fixture(scope="module")
def text(sweep: Sweep) -> str:
    return build_page(sweep, "A sweep of <engines> & more")


@pytest.fixture(scope="module")
def read(text: str) -> Reader:
    return Reader(text)


def packed(read: Reader) -> dict[str, Any]:
    return json.loads(gzip.decompress(base64.b64decode(read.scripts[1])))


def test_nothing_is_fetched(read: Reader) -> None:
    assert {tag for tag, _ in read.tags}.isdisjoint({"link", "img", "iframe", "object", "embed"})
    for tag, attributes in read.tags:
        for name in ("src", "srcset", "href", "data", "action", "poster"):
            value = attributes.get(name)
            assert value is None or value.startswith("#"), (tag, name, value)
    for style in read.styles:
        assert "@import" not in style and "url(" not in style


def test_policy_allows_these_scripts_and_no_request(read: Reader) -> None:
    (policy,) = [
        attributes["content"] or ""
        for tag, attributes in read.tags
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split(";")}
    assert rules["default-src"] == ["'none'"]
    assert rules["img-src"] == ["data:", "blob:"]
    kinds = [attributes.get("type") for tag, attributes in read.tags if tag == "script"]
    assert kinds == ["module", "application/octet-stream", "module"]
    digests = [
        base64.b64encode(hashlib.sha256(read.scripts[index].encode()).digest()).decode()
        for index in (0, 2)
    ]
    assert rules["script-src"] == [f"'sha256-{digest}'" for digest in digests]


def test_title_is_escaped(text: str) -> None:
    assert "<title>A sweep of &lt;engines&gt; &amp; more</title>" in text
    assert "<engines>" not in text


def test_hostile_text_is_nowhere_in_the_page(text: str, read: Reader, builder: Any) -> None:
    assert "owned" in builder.HOSTILE and "alert(1)" in builder.HOSTILE
    assert '"owned"' not in text and "alert(1)" not in text
    assert builder.HOSTILE in [point["error"] for point in packed(read)["points"]]


def test_page_is_the_same_again_and_of_reasonable_size(text: str, sweep: Sweep) -> None:
    assert build_page(sweep, "A sweep of <engines> & more") == text
    assert len(text.encode()) < LIMIT


def test_content_is_the_sweeps(read: Reader, content: dict[str, Any]) -> None:
    shown = packed(read)
    assert shown["workloads"] == ["residual", "separable"]
    keys = [column["key"] for column in shown["columns"]]
    assert len(keys) == len(set(keys))
    for point, given in zip(shown["points"], content["points"], strict=True):
        assert point["id"] == given["id"]
        for key, value in (given["area"] or {}).items():
            assert point["values"][key] == value
        for name, run in point["runs"].items():
            record = given["workloads"][name]
            assert run["moved_bytes"] == record["read_bytes"] + record["write_bytes"]
            assert run["utilisation"] == pytest.approx(100 * record["utilisation"])
            assert [layer["cycles"] for layer in run["layers"]] == [
                layer["cycles"] for layer in record["layers"]
            ]
    assert set(shown["plots"]["separable"]) == {
        "lut4",
        "ffs",
        "dsps",
        "block_rams",
        "budget_bytes",
    }
    assert [entry["key"] for entry in shown["resources"]] == [
        "lut4",
        "ffs",
        "dsps",
        "block_rams",
    ]


def test_each_tile_picture_is_that_of_its_layer(read: Reader, content: dict[str, Any]) -> None:
    shown = packed(read)
    pictures = 0
    for point, given in zip(shown["points"], content["points"], strict=True):
        for name, run in point["runs"].items():
            for layer, record in zip(
                run["layers"], given["workloads"][name]["layers"], strict=True
            ):
                if record["tile"] is None:
                    assert layer["figure"] is None
                    continue
                pictures += 1
                svg = ElementTree.fromstring(shown["figures"][layer["figure"]])
                texts = ["".join(element.itertext()) for element in svg.iter()]
                tile = record["tile"]
                wanted = (
                    f"tile {tile['height']}x{tile['width']}x{tile['in_channels']} -> "
                    f"{tile['out_channels']}, order {record['order']}, {record['mode']} mode on "
                    f"{given['config']['out_lanes']}x{given['config']['split_lanes']} lanes"
                )
                assert wanted in texts
    assert pictures >= len(shown["figures"]) > 20


def test_equal_pictures_are_kept_once(content: dict[str, Any], tmp_path: Path) -> None:
    one = copy.deepcopy(content["points"][0])
    # Ports change cycles, but no tile and no buffer.
    other = copy.deepcopy(one) | {"id": "other"}
    other["config"]["bus_bytes"] = 8
    (tmp_path / "sweep.json").write_text(
        json.dumps(content | {"points": [one, other]}), encoding="utf-8"
    )
    shown = page_content(read_sweep(tmp_path), "T")
    layers = [run["layers"] for point in shown["points"] for run in point["runs"].values()]
    drawn = [layer["figure"] for run in layers for layer in run if layer["figure"] is not None]
    assert len(drawn) == 2 * len(shown["figures"]) == 12


def test_pictures_are_bounded_and_the_front_comes_first(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "MAX_PICTURES", 30)
    shown = page_content(sweep, "T")
    assert len(shown["figures"]) == 30
    assert [point["values"]["number"] for point in shown["points"]] == list(range(1, 18))
    fronts = {
        row["id"]
        for by_area in shown["plots"].values()
        for by_rate in by_area.values()
        for chart in by_rate.values()
        for row in chart["datasets"]["points"]
        if row["front"] == "yes"
    }
    drawn = {
        point["id"]
        for point in shown["points"]
        for run in point["runs"].values()
        if any(layer["figure"] is not None for layer in run["layers"])
    }
    assert drawn and drawn < fronts


def test_pictures_keep_to_colours_that_the_page_adapts(read: Reader) -> None:
    """Greys and pale fills would stay white in the dark theme if the page knew them not."""
    style = read.styles[0]
    adapted = set(re.findall(r'\[(fill|stroke)="(#[0-9a-f]{6})"\]', style))
    for svg in packed(read)["figures"]:
        for kind, color in re.findall(r'(fill|stroke)="(#[0-9a-f]{6})"', svg):
            levels = [int(color[at : at + 2], 16) for at in (1, 3, 5)]
            pale, grey = min(levels) > 0xBE, max(levels) - min(levels) < 0x20
            if pale or grey:
                assert (kind, color) in adapted, (kind, color)


def test_other_families_count_luts(content: dict[str, Any], tmp_path: Path) -> None:
    changed = copy.deepcopy(content) | {"family": "xilinx"}
    (tmp_path / "sweep.json").write_text(json.dumps(changed), encoding="utf-8")
    shown = page_content(read_sweep(tmp_path), "T")
    assert shown["family"] == "7 series"
    assert [entry["key"] for entry in shown["resources"]][:2] == ["luts", "ffs"]
    assert "luts" in [column["key"] for column in shown["columns"]]


@pytest.mark.parametrize("name", sorted(path.name for path in ASSETS.iterdir()))
def test_assets_hold_no_address(name: str) -> None:
    text = (ASSETS / name).read_text(encoding="utf-8")
    assert not re.search(r"https?://|//[a-z]+\.[a-z]", text)
