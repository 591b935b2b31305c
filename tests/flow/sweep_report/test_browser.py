"""The page opened and used in Chromium, without a network."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from haloconv.flow.sweep_report import page as page_module
from haloconv.flow.sweep_report.page import build_page
from haloconv.flow.sweep_report.points import Sweep, read_sweep

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((path for name in BROWSERS if (path := shutil.which(name))), None)
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DASH = "\N{EN DASH}"
LUT4, CYCLES = "LUT4 (a CCU2C counts as two)", "Cycles a frame"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        BROWSER is None, reason=f"no Chromium: none of {', '.join(BROWSERS)} is installed"
    ),
]


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"),
            executable_path=BROWSER,
            args=ARGUMENTS,
            viewport={"width": 1360, "height": 900},
            locale="de-DE",
        )
        browser.set_default_timeout(20_000)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page_file(sweep: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(build_page(sweep, "Engines on ECP5"), encoding="utf-8")
    return path


class Opened:
    """A page, what it said on its console and what it asked the network for."""

    def __init__(self, context: Any, path: Path, address: str = "") -> None:
        self.page = context.new_page()
        self.said: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri() + address)
        self.dots.first.wait_for()

    @property
    def dots(self) -> Any:
        return self.page.locator("#pareto .dots_marks > path")

    @property
    def chosen(self) -> str:
        return self.page.locator("#chosen").inner_text()

    def column(self, key: str) -> list[str]:
        """The texts of a column of the table, by its key."""
        keys = self.page.locator("#points thead button").evaluate_all(
            "buttons => buttons.map((button) => button.dataset.key)"
        )
        at = keys.index(key) + 1
        return self.page.locator(f"#points tbody td:nth-child({at})").all_inner_texts()

    def axis_titles(self) -> list[str]:
        return self.page.locator("#pareto .role-axis-title").all_text_contents()

    def ringed(self, plot: str = "pareto") -> int:
        return self.page.locator(f"#{plot} .layer_1_marks > path").count()


@pytest.fixture
def opened(context: Any, page_file: Path) -> Iterator[Opened]:
    made = Opened(context, page_file)
    yield made
    assert made.said == []
    assert made.requests == [page_file.as_uri()]
    made.page.close()


def words(text: str) -> str:
    return " ".join(text.split())


def lut4(text: str) -> int:
    return int(text.replace(",", ""))


def test_it_opens(opened: Opened, content: dict[str, Any]) -> None:
    page = opened.page
    assert page.title() == "Engines on ECP5"
    assert page.locator("#summary").inner_text() == (
        "17 points on ECP5, 2 failed, 2 workloads, frames at 100 MHz where no clock was measured."
    )
    assert opened.dots.count() == 15
    assert opened.axis_titles() == [LUT4, CYCLES]
    assert opened.column("number") == [str(number) for number in range(1, 18)]
    # Thousands separators are the same in every language.
    assert opened.column("lut4")[:15] == [
        f"{point['area']['lut4']:,}" for point in content["points"][:15]
    ]
    assert opened.column("fmax_mhz")[:2] == ["127.5", DASH]


def test_hostile_text_stays_text(opened: Opened, builder: Any) -> None:
    assert f"failed: {builder.HOSTILE}" in opened.column("status")
    opened.page.locator("#points tbody tr", has_text="abc9").click()
    assert opened.page.locator("#chosen .reason").inner_text() == builder.HOSTILE
    assert opened.page.title() == "Engines on ECP5"
    assert opened.page.locator("#main img").count() == 0
    # Nor would code that got in run.
    opened.page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'),"
        " {textContent: 'document.title = \"owned\"'}))"
    )
    assert opened.page.title() == "Engines on ECP5"
    assert [text for text in opened.said if "Content Security Policy" in text]
    opened.said.clear()


def test_workload_and_axes(opened: Opened, content: dict[str, Any]) -> None:
    page = opened.page
    page.select_option("#workload", "separable")
    opened.page.locator("#chosen", has_text="Cycles of separable").wait_for()
    ok = content["points"][:15]
    assert opened.column("cycles")[:15] == [
        f"{point['workloads']['separable']['cycles']:,}" for point in ok
    ]
    # One point failed on the other workload alone.
    page.wait_for_function("document.querySelectorAll('#pareto .dots_marks > path').length == 16")
    page.select_option("#x-axis", "dsps")
    page.select_option("#y-axis", "fps")
    page.locator("#pareto .role-axis-title", has_text="Frames a second").wait_for()
    assert opened.axis_titles() == ["DSP blocks", "Frames a second, at Fmax, else at 100 MHz"]
    assert page.url.endswith(
        "#workload=separable&x=dsps&y=fps&point="
        + page.evaluate("document.querySelector('#points tr[aria-current=true]').dataset.id")
    )
    # Fewest multipliers are best with most frames: the front's column follows the axes.
    by_dsps: dict[int, float] = {}
    for point in ok:
        dsps, fps = point["area"]["dsps"], point["workloads"]["separable"]["fps"]
        by_dsps[dsps] = max(by_dsps.get(dsps, 0), fps)
    wanted = {
        fps
        for dsps, fps in by_dsps.items()
        if all(other < fps for less, other in by_dsps.items() if less < dsps)
    }
    shown = [front == "yes" for front in opened.column("front")[:15]]
    assert shown == [point["workloads"]["separable"]["fps"] in wanted for point in ok]


def test_sorting(opened: Opened) -> None:
    head = opened.page.locator("#points th:has(button[data-key=lut4])")
    button = head.locator("button")
    assert head.get_attribute("aria-sort") == "none"
    button.click()
    values = opened.column("lut4")
    # What is not known comes last in both directions.
    assert head.get_attribute("aria-sort") == "ascending"
    assert values[-1] == DASH
    numbers = [lut4(text) for text in values[:-1]]
    assert numbers == sorted(numbers) and len(set(numbers)) > 4
    # The button keeps the focus, so that the keyboard can turn the order.
    opened.page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    values = opened.column("lut4")
    assert values[-1] == DASH
    assert [lut4(text) for text in values[:-1]] == sorted(numbers, reverse=True)
    # Words with numbers sort by the numbers.
    opened.page.locator("#points button[data-key=lanes]").click()
    lanes = list(dict.fromkeys(opened.column("lanes")))
    assert lanes == ["?", "2x2", "4x4", "8x4", "8x8", "16x8"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("lanes=4x4", [4, 5, 6]),
        ("lanes=4\N{MULTIPLICATION SIGN}4 budget_bytes>8,192", [5, 6]),
        ("lut4<4000", [1, 2, 3]),
        ("dsps>=68 dsps<=68 budget_bytes!=8192", [11, 12, 16]),
        ("status=failed", [16, 17]),
        ("CLOCK was", [17]),
        ("fmax_mhz>125", [1]),
        ("8x8 32,768", [12]),
        ("no such words", []),
        ("", list(range(1, 18))),
    ],
)
def test_filter(opened: Opened, text: str, wanted: list[int]) -> None:
    opened.page.fill("#filter", text)
    assert opened.column("number") == [str(number) for number in wanted]
    state = opened.page.locator("#filter-state").inner_text()
    assert state == ("" if not text else f"{len(wanted)} of 17 points shown.")
    plotted = [number for number in wanted if number <= 15]
    opened.page.wait_for_function(
        "wanted => [...document.querySelectorAll('#pareto .dots_marks > path')]"
        ".filter((dot) => dot.getAttribute('opacity') >= 0.1).length === wanted",
        arg=len(plotted),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lutz<3", "There is no column lutz; compare number, lanes"),
        ("lut4<many", "lut4<many: many must be a number."),
    ],
)
def test_wrong_filter_is_told(opened: Opened, text: str, message: str) -> None:
    opened.page.fill("#filter", text)
    assert opened.page.locator("#filter-state").inner_text().startswith(message)
    assert opened.page.locator("#filter").get_attribute("aria-invalid") == "true"
    assert len(opened.column("number")) == 17


def test_pareto_front_only(opened: Opened) -> None:
    wanted = [
        number
        for number, front in zip(opened.column("number"), opened.column("front"), strict=True)
        if front == "yes"
    ]
    opened.page.check("#front-only")
    assert opened.column("number") == wanted
    assert 0 < len(wanted) < 15


def test_choosing_in_plot_and_table(opened: Opened, content: dict[str, Any]) -> None:
    page = opened.page
    opened.dots.nth(-1).click()
    label = opened.dots.nth(-1).get_attribute("aria-label")
    assert label in opened.chosen
    before = page.locator("#tile").inner_html()
    page.locator("#points tbody tr").nth(4).locator("td").nth(3).click()
    point = content["points"][4]
    run = point["workloads"]["residual"]
    text = words(opened.chosen)
    for part in (
        "Point 5: 4x4 lanes, 16 KiB buffers",
        f"LUT4 {point['area']['lut4']:,}",
        f"Cycles of residual {run['cycles']:,}",
        f"Read {run['read_bytes']:,} B",
        f"Frames a second {run['fps']:,.2f} at {point['fmax_mhz']:.1f} MHz"
        if point["fmax_mhz"]
        else f"at {content['clock_mhz']:.1f} MHz",
    ):
        assert part in text, text
    current = page.locator("#points tr[aria-current=true]")
    assert current.count() == 1
    assert current.locator("td").first.inner_text() == "5"
    page.wait_for_function("document.querySelectorAll('#pareto .layer_1_marks > path').length == 1")
    # Everything below is of this point.
    assert page.locator("#tile").inner_html() != before
    assert page.locator("#tile svg").count() == 1
    blocks = page.locator("#blocks tbody tr").all_inner_texts()
    assert words(blocks[0]).startswith(f"all {point['area']['lut4']:,}")
    datapath = sum(
        area["lut4"] for path, area in point["blocks"].items() if path.startswith("datapath")
    )
    assert any(f"datapath {datapath:,}" in words(row) for row in blocks)
    layers = page.locator("#layers tbody tr").all_inner_texts()
    assert [words(row).split()[0] for row in layers] == ["body", "down", "add"]
    assert "input buffer, each of two halves 2,048 B" in words(
        page.locator("#parameters").inner_text()
    )


def test_blocks_open_and_close(opened: Opened) -> None:
    rows = opened.page.locator("#blocks tbody tr")
    before = rows.count()
    button = opened.page.locator("#blocks button[aria-label='Parts of drain']")
    button.click()
    assert rows.count() == before + 2
    assert "requantizer_0" in words(opened.page.locator("#blocks").inner_text())
    opened.page.locator("#blocks button[aria-label='Parts of datapath']").click()
    assert "requantizer_0" not in words(opened.page.locator("#blocks").inner_text())
    assert rows.count() == before - 3


def test_layers(opened: Opened, content: dict[str, Any]) -> None:
    page = opened.page
    page.select_option("#workload", "separable")
    dots = page.locator("#roofline .dots_marks > path")
    # All but the elementwise layer.
    page.wait_for_function("document.querySelectorAll('#roofline .dots_marks > path').length == 4")
    assert page.locator("#layer option").all_inner_texts() == [
        "1 first",
        "2 depthwise",
        "3 pointwise",
        "4 classifier",
    ]
    title = page.locator("#tile svg text").first
    assert title.text_content() == "48x48x3 k3 s2 p0,1,0,1 m16"
    page.select_option("#layer", label="3 pointwise")
    assert title.text_content() == "24x24x16 k1 m32"
    page.locator("#layers tbody tr").nth(1).click()
    assert title.text_content() == "24x24x16 k3 p1 m16 g16"
    assert page.locator("#layers tr[aria-current=true]").inner_text().startswith("depthwise")
    dots.nth(3).click()
    assert title.text_content() == "1x1x256 k1 m10"
    assert page.locator("#layer").input_value() == "3"
    page.wait_for_function(
        "document.querySelectorAll('#roofline .layer_1_marks > path').length == 1"
    )
    # An elementwise layer has no tile to show.
    page.locator("#layers tbody tr").nth(4).click()
    assert title.text_content() == "1x1x256 k1 m10"


def test_failed_point_without_engine(opened: Opened) -> None:
    opened.page.locator("#points tbody tr").nth(16).click()
    assert "the clock was not met" in opened.chosen
    assert "No area is known" in opened.page.locator("#blocks").inner_text()
    assert "No layers are known" in opened.page.locator("#layers").inner_text()
    assert "No tile is known" in opened.page.locator("#tile").inner_text()
    opened.page.locator("#roofline", has_text="No layer with multiply-accumulates").wait_for()
    assert opened.page.locator("#layer").is_disabled()


def test_keyboard(opened: Opened) -> None:
    page = opened.page
    page.locator("#pareto").focus()
    page.keyboard.press("ArrowLeft")
    left = opened.chosen
    page.keyboard.press("ArrowLeft")
    further = opened.chosen
    page.keyboard.press("ArrowRight")
    assert opened.chosen == left != further
    for _ in range(20):
        page.keyboard.press("ArrowLeft")
    assert "2x2 lanes" in opened.chosen
    page.locator("#points tbody button").nth(6).focus()
    page.keyboard.press("Enter")
    assert "Point 7:" in opened.chosen
    # Every control can be reached with the tabulator alone.
    seen = set()
    page.locator("#workload").focus()
    for _ in range(45):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {"x-axis", "y-axis", "filter", "front-only", "pareto"} <= seen


def test_hover(opened: Opened) -> None:
    opened.dots.nth(-1).hover()
    tooltip = opened.page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    text = words(tooltip.inner_text())
    assert "Engine " in text and "LUT4 " in text and "Pareto front yes" in text


@pytest.mark.parametrize(("kind", "start"), [("SVG", b"<svg"), ("PNG", b"\x89PNG")])
def test_saving_a_plot(opened: Opened, kind: str, start: bytes) -> None:
    opened.page.locator("section:has(#pareto) summary").click()
    with opened.page.expect_download() as waiting:
        opened.page.get_by_text(f"Save as {kind}").first.click()
    assert waiting.value.suggested_filename == f"haloconv-pareto.{kind.lower()}"
    assert Path(waiting.value.path()).read_bytes().startswith(start)


def test_reload_keeps_the_choice(context: Any, opened: Opened, page_file: Path) -> None:
    opened.page.select_option("#y-axis", "fps")
    opened.page.locator("#points tbody tr").nth(7).click()
    again = Opened(context, page_file, "#" + opened.page.url.partition("#")[2])
    assert "Point 8:" in again.chosen
    assert again.page.locator("#y-axis").input_value() == "fps"
    assert again.said == []
    again.page.close()


@pytest.mark.parametrize("width", [360, 820, 1360])
def test_narrow_screens(opened: Opened, width: int) -> None:
    opened.page.set_viewport_size({"width": width, "height": 800})
    opened.page.wait_for_function(
        "width => document.querySelector('#pareto svg').getBoundingClientRect().width <= width",
        arg=width,
    )
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    opened.page.set_viewport_size({"width": 1360, "height": 900})


def test_dark(opened: Opened) -> None:
    page = opened.page

    def brightness(selector: str, what: str) -> float:
        color = page.evaluate(
            "([selector, what]) => getComputedStyle(document.querySelector(selector))[what]",
            [selector, what],
        )
        return sum(map(float, re.findall(r"[\d.]+", color)[:3])) / 765

    title, picture = "#pareto .role-axis-title text", "#tile svg > rect"
    assert brightness("body", "backgroundColor") > 0.9
    assert brightness(title, "fill") < 0.3
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(
        "title => getComputedStyle(document.querySelector(title) ?? document.body).fill"
        ".match(/\\d+/g)[0] > 180",
        arg=title,
    )
    assert brightness("body", "backgroundColor") < 0.2
    assert brightness(picture, "fill") < 0.2
    assert brightness("#tile svg text", "fill") > 0.7
    page.emulate_media(color_scheme="light")


def test_pictures_that_were_left_out(
    context: Any, sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "MAX_PICTURES", 0)
    path = tmp_path / "report.html"
    path.write_text(build_page(sweep, "T"), encoding="utf-8")
    made = Opened(context, path)
    assert "left out to keep the page small" in made.page.locator("#tile").inner_text()
    # Layers can be chosen all the same.
    made.page.locator("#layers tbody tr").nth(1).click()
    assert made.page.locator("#layers tr[aria-current=true]").inner_text().startswith("down")
    assert made.said == []
    made.page.close()


def other_page(context: Any, content: dict[str, Any], folder: Path) -> tuple[Any, list[str]]:
    """Open the page of another sweep; return it and what it said on its console."""
    (folder / "sweep.json").write_text(json.dumps(content), encoding="utf-8")
    path = folder / "report.html"
    path.write_text(build_page(read_sweep(folder), "T"), encoding="utf-8")
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(path.as_uri())
    page.locator("#pareto", has_text="nothing to plot").wait_for()
    return page, said


def test_sweep_whose_points_all_failed(
    context: Any, content: dict[str, Any], tmp_path: Path
) -> None:
    page, said = other_page(context, content | {"points": content["points"][-1:]}, tmp_path)
    assert "the clock was not met" in page.locator("#chosen").inner_text()
    assert said == []
    page.close()


def test_sweep_without_workloads(context: Any, content: dict[str, Any], tmp_path: Path) -> None:
    points = [point | {"workloads": {}} for point in content["points"][:3]]
    page, said = other_page(context, content | {"points": points}, tmp_path)
    assert "This sweep has no workloads" in page.locator("#pareto").inner_text()
    assert not page.locator("#workload").is_visible()
    assert not page.locator("#layers").is_visible()
    page.locator("#points tbody tr").nth(2).click()
    assert "Point 3:" in page.locator("#chosen").inner_text()
    assert "No result" not in page.locator("#chosen").inner_text()
    lut4 = points[2]["area"]["lut4"]
    assert words(page.locator("#blocks tbody tr").first.inner_text()).startswith(f"all {lut4:,}")
    assert said == []
    page.close()
