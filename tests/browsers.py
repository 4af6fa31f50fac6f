"""A browser that tests of pages share: headless, alone, and watched."""

import contextlib
from pathlib import Path

import pytest

CHROMIUM = Path("/usr/bin/chromium")
MARKS = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"{CHROMIUM} is not there"),
]
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextlib.contextmanager
def chromium():
    """Launch the browser."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=_ARGUMENTS)
        yield browser
        browser.close()


@contextlib.contextmanager
def watched(browser, address):
    """Open a page by a function; all that it asks for and complains of is looked at in the end."""
    contexts, requests, complaints = [], [], []

    def open_page(width=1280, scheme="light", scripts=True):
        context = browser.new_context(
            viewport={"width": width, "height": 844},
            color_scheme=scheme,
            java_script_enabled=scripts,
        )
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    assert {url for url in requests if not url.startswith("data:")} == {address}
