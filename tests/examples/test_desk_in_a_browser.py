"""The desk in a real browser: Chromium, driven by Playwright, at the width of a desk and of a phone."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.examples.needs import need, need_apertium
from tests.web.server import Server

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[2]
AXE = ROOT / "tests" / "web" / "vendor" / "axe.min.js"
SCREENSHOT = ROOT / "docs" / "images" / "translation-desk.png"
CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDTHS = {
    "desktop": {"viewport": {"width": 1280, "height": 900}},
    "phone": {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True},
}
TABLE = "/editor/translations"


@pytest.fixture(scope="module")
def browser():
    need("chromium", CHROMIUM)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        if os.environ.get("CI"):
            raise
        pytest.skip("NOT TESTED: playwright is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(params=WIDTHS)
def width(request):
    return WIDTHS[request.param]


class Switch:
    """Switch the translator of the server on and off, and set the seconds that it takes."""

    def __init__(self, path):
        self.path = path
        self.up(0.01)

    def up(self, seconds):
        replacement = self.path.with_suffix(".new")
        replacement.write_text(str(seconds))
        replacement.replace(self.path)

    def down(self):
        self.path.unlink()


@pytest.fixture(scope="module")
def switch(tmp_path_factory):
    return Switch(tmp_path_factory.mktemp("desk") / "switch")


@pytest.fixture(scope="module")
def server(switch):
    environment = {"DESK_SWITCH": str(switch.path)}
    with Server("tests.examples.switched_desk:create", "--factory", environment=environment) as server:
        yield server


@pytest.fixture
def opened(browser, server, switch):
    """Open the desk as a new user, and see to it that nothing goes wrong in the browser."""
    from playwright.sync_api import expect

    expect.set_options(timeout=10_000)
    switch.up(0.01)
    wrong = []
    with contextlib.ExitStack() as stack:

        def open_desk(width, path="/", **options):
            context = browser.new_context(base_url=server.url, **width, **options)
            stack.callback(context.close)
            page = context.new_page()
            page.on("console", lambda said: wrong.append(said.text) if said.type in {"error", "warning"} else None)
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on(
                "requestfailed",
                lambda request: wrong.append(request.url) if request.failure != "net::ERR_ABORTED" else None,
            )
            page.on(
                "request", lambda request: None if request.url.startswith(server.url) else wrong.append(request.url)
            )
            if options.get("java_script_enabled", True):
                page.clock.install()
            page.goto(path)
            return page

        yield open_desk
        assert wrong == []


def start(page, text="# Good morning", language="es"):
    from playwright.sync_api import TimeoutError as NoAnswer

    page.wait_for_function("window.htmx && document.readyState === 'complete'")
    page.fill("#markdown", text)
    page.select_option("#language", language)
    for last in (
        False,
        True,
    ):  # once in a hundred times the first press in a browser that was just started does nothing
        try:
            with page.expect_response(is_order, timeout=25_000 if last else 8_000):
                page.press("#start", "Enter")
        except NoAnswer:
            if last:
                raise
        else:
            return


def is_order(answer):
    return answer.request.method == "POST" and urlsplit(answer.url).path == TABLE


def rows(page):
    return page.locator("#translations tbody tr")


def finished(page, number=1, mark="✓"):
    """Wait until so many translations are done, with the browser's clock running ahead to the next poll."""
    from playwright.sync_api import expect

    deadline = time.monotonic() + 20
    while rows(page).filter(has_text=mark).count() < number:
        assert time.monotonic() < deadline
        page.clock.fast_forward(5000)
        page.wait_for_timeout(50)
    expect(rows(page).filter(has_text=mark)).to_have_count(number)


def violations(page):
    """Return what axe finds that is serious."""
    page.evaluate(AXE.read_text("utf-8"))
    result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        (each["id"], each["impact"], [node["html"][:200] for node in each["nodes"]])
        for each in result["violations"]
        if each["impact"] in {"serious", "critical"}
    ]


def test_a_translation_is_started_watched_and_viewed(opened, width, switch):
    from playwright.sync_api import expect

    switch.up(0.5)
    page = opened(width)
    start(page, "# Good *morning*")
    expect(rows(page)).to_have_count(1)
    row = rows(page).first
    expect(row.get_by_role("rowheader")).to_have_text("Spanish")
    expect(row.locator(".spinner")).to_be_visible()
    expect(page.locator("#announcement")).to_contain_text("1 running")
    finished(page)
    expect(row.locator(".spinner")).to_have_count(0)
    expect(row.locator(".time")).to_have_text(re.compile(r"^\d+\.\d s$"))
    expect(page.locator("#announcement")).to_contain_text("0 running, 1 finished")
    row.get_by_role("link", name="View").click()
    expect(page.locator("#translated h1")).to_have_text("GOOD MORNING")
    expect(page.locator("#original h1 em")).to_have_text("morning")
    expect(page.locator("#result-title")).to_be_focused()
    row.get_by_role("link", name="What happened").click()
    history = page.locator(".history li")
    expect(history).to_have_count(5)
    assert [line.split()[2] for line in history.all_inner_texts()] == [
        "enqueued",
        "started",
        "translation.parsed:",
        "translation.progressed:",
        "completed",
    ]
    assert "morning" not in page.locator("#result").inner_text().lower()


def test_polling_goes_on_while_something_runs_and_then_stops(opened, width, switch):
    switch.up(600)
    page = opened(width)
    polls = []
    page.on("response", lambda answer: polls.append(answer.request.method) if answer.url.endswith(TABLE) else None)
    start(page)
    polls.clear()
    for number in (1, 2):
        page.clock.run_for(4_900)
        assert len(polls) == number - 1, "one every five seconds, and none before"
        with page.expect_response(lambda answer: answer.url.endswith(TABLE)):
            page.clock.run_for(200)
    switch.up(0.01)
    finished(page)
    polls.clear()
    page.clock.run_for(60_000)
    page.wait_for_timeout(300)
    assert polls == [], "nothing runs, so nobody asks"
    start(page)
    finished(page, 2)
    assert "GET" in polls, "and it begins anew"


def test_a_failure_has_a_cross_and_its_reason(opened, width, switch):
    from playwright.sync_api import expect

    page = opened(width)
    switch.up(-1)  # an error that nobody expected
    start(page)
    finished(page, mark="✗")
    rows(page).first.get_by_role("link", name="View").click()
    expect(page.locator("#result")).to_contain_text("It failed")


def test_the_preview_follows_what_is_written(opened, width):
    from playwright.sync_api import expect

    page = opened(width)
    page.fill("#markdown", "# One **two**\n\n| a | b |\n|---|--:|\n| 1 | 2 |")
    page.clock.fast_forward(400)
    expect(page.locator("#preview h1 strong")).to_have_text("two")
    expect(page.locator("#preview td").nth(1)).to_have_css("text-align", "right")


def test_a_script_is_shown_as_text_in_the_preview_and_in_the_result(opened, width):
    from playwright.sync_api import expect

    script = "<script>document.title = 'taken'</script>"
    attack = f"{script}\n\n<img src=x onerror=\"document.title='taken'\"> [x](javascript:alert(1))"
    page = opened(width)
    page.fill("#markdown", attack)
    page.clock.fast_forward(400)
    expect(page.locator("#preview")).to_contain_text(script)
    start(page, attack)
    finished(page)
    rows(page).first.get_by_role("link", name="View").click()
    expect(page.locator("#original")).to_contain_text(script)
    expect(page.locator("#translated")).to_contain_text("<script>")
    assert page.locator("main img, main script").count() == 0
    assert page.title() == "Translation desk"


def test_the_newest_five_are_listed(opened, width):
    from playwright.sync_api import expect

    page = opened(width)
    for number in range(6):
        start(page, f"text {number}", "ca" if number == 5 else "es")
    expect(rows(page)).to_have_count(5)
    expect(rows(page).first).to_contain_text("Catalan")
    finished(page, 5)
    rows(page).last.get_by_role("link", name="View").click()
    expect(page.locator("#translated")).to_have_text("TEXT 1")


def test_two_users_see_only_their_own(opened, width):
    from playwright.sync_api import expect

    ada, bob = opened(width), opened(width)
    start(ada, "from Ada")
    finished(ada)
    bob.reload()
    expect(bob.locator("#translations")).to_contain_text("Nothing yet")
    path = rows(ada).first.get_by_role("link", name="View").get_attribute("href")
    assert bob.request.get(path).status == 404
    assert ada.request.get(path).status == 200
    start(bob, "from Bob")
    finished(bob)
    expect(rows(bob)).to_have_count(1)
    ada.reload()
    expect(rows(ada)).to_have_count(1)


def test_the_translator_goes_down_and_comes_back(opened, width, switch):
    from playwright.sync_api import expect

    page = opened(width)
    switch.down()
    start(page, "kept text")
    expect(page.get_by_role("alert")).to_contain_text("The translator is down")
    expect(page.locator("#translations")).to_contain_text("Nothing yet")
    assert page.input_value("#markdown") == "kept text"
    page.reload()
    expect(page.locator("#down")).to_contain_text("The translator is down just now")
    start(page, "kept text")
    expect(page.locator(".notice:visible")).to_have_count(1)
    switch.up(0.01)
    start(page, "kept text")
    expect(page.locator(".notice:visible")).to_have_count(0)
    finished(page)


def test_the_keyboard_is_enough(opened, width):
    from playwright.sync_api import expect

    page = opened(width)
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab") if not page.evaluate("document.activeElement.id === 'markdown'") else None
    expect(page.locator("#markdown")).to_be_focused()
    page.keyboard.press("Control+A")
    page.keyboard.type("Typed")
    page.keyboard.press("Tab")
    expect(page.locator("#language")).to_be_focused()
    page.keyboard.press("c")
    page.keyboard.press("Tab")
    expect(page.locator("#start")).to_be_focused()
    page.keyboard.press("Enter")
    expect(rows(page)).to_have_count(1)
    expect(rows(page).first).to_contain_text("Catalan")
    finished(page)
    rows(page).first.get_by_role("link", name="View").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#translated")).to_have_text("TYPED")


def test_a_poll_does_not_take_the_focus_away(opened, width, switch):
    from playwright.sync_api import expect

    page = opened(width)
    start(page, "first")
    finished(page)
    switch.up(8)
    start(page, "second")
    link = rows(page).last.get_by_role("link", name="View")
    link.focus()
    with page.expect_response(lambda answer: answer.request.method == "GET"):
        page.clock.fast_forward(5000)
    expect(link).to_be_focused()


def test_it_works_without_javascript(opened, width):
    from playwright.sync_api import expect

    page = opened(width, java_script_enabled=False)
    page.fill("#markdown", "plain")
    page.click("#start")
    expect(rows(page)).to_have_count(1)
    deadline = time.monotonic() + 10
    while not rows(page).filter(has_text="✓").count():
        assert time.monotonic() < deadline
        page.reload()
    rows(page).first.get_by_role("link", name="View").click()
    expect(page.locator("#translated")).to_have_text("PLAIN")


@pytest.mark.parametrize(("name", "scheme"), [("desktop", "dark"), ("phone", "light")])
def test_nothing_serious_is_wrong_for_people_who_see_or_point_less(opened, name, scheme, switch):
    from playwright.sync_api import expect

    page = opened(WIDTHS[name], color_scheme=scheme)
    assert violations(page) == []
    start(page, page.input_value("#markdown"))
    finished(page)
    rows(page).first.get_by_role("link", name="View").click()
    expect(page.locator("#translated h1")).to_be_visible()
    switch.down()
    start(page)
    expect(page.get_by_role("alert")).to_be_visible()
    assert violations(page) == []
    rows(page).first.get_by_role("link", name="What happened").click()
    expect(page.locator(".history")).to_be_visible()
    switch.up(30)
    start(page)
    expect(page.locator(".spinner")).to_be_visible()
    assert violations(page) == []


def test_nothing_is_wider_than_the_window(opened, width, switch):
    from playwright.sync_api import expect

    page = opened(width)
    start(page, page.input_value("#markdown") + "\n\n" + "x" * 300 + "\n\n    " + "y" * 300)
    finished(page)
    rows(page).first.get_by_role("link", name="View").click()
    expect(page.locator("#translated h1")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_the_picture_of_the_documentation_can_be_made(browser, tmp_path):
    """Take the picture; `SCREENSHOT=1` puts it into the documentation."""
    from playwright.sync_api import expect

    need_apertium()
    target = SCREENSHOT if os.environ.get("SCREENSHOT") else tmp_path / "desk.png"
    target.parent.mkdir(exist_ok=True)
    with Server("examples.translation_desk.app:create_app", "--factory") as server:
        context = browser.new_context(viewport={"width": 1200, "height": 1180}, base_url=server.url)
        page = context.new_page()
        page.clock.install()
        page.goto("/")
        for language in page.locator("#language option").evaluate_all("all => all.map(each => each.value)"):
            start(page, page.input_value("#markdown"), language)
        finished(page, rows(page).count())
        page.fill("#markdown", page.input_value("#markdown").replace("at seven", "at eight"))
        start(page, page.input_value("#markdown"), page.input_value("#language"))
        expect(page.locator(".spinner")).to_be_visible()
        rows(page).last.get_by_role("link", name="What happened").click()
        expect(page.locator(".history")).to_be_visible()
        page.evaluate("document.activeElement.blur(); markdown.scrollTop = 0; window.scrollTo(0, 0)")
        page.screenshot(path=target, full_page=True)
        context.close()
    assert target.stat().st_size > 20_000
