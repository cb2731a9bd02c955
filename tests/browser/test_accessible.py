"""What axe finds on the pages, light and dark: nothing serious or critical."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from browser.chromium import PHONE, Opened, violations
from browser.serving import Served

pytestmark = pytest.mark.browser

Open = Callable[..., Opened]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("report", ["three", "many"])
def test_the_report(
    open_page: Open, report: str, scheme: str, request: pytest.FixtureRequest
) -> None:
    page = open_page(request.getfixturevalue(report), color_scheme=scheme).page
    page.locator("select[data-choose]").first.select_option(index=1)
    assert violations(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "path", ["/", "/report/many", "/compare?run=three/ditto&run=three/fedavg", "/deployment/clinic"]
)
def test_the_live_pages(open_page: Open, served: Served, path: str, scheme: str) -> None:
    page = open_page(f"{served.url}{path}", color_scheme=scheme).page
    assert violations(page) == []


def test_the_list_on_a_phone(open_page: Open, served: Served) -> None:
    opened = open_page(f"{served.url}/", viewport=PHONE)
    assert not opened.scrolls_sideways()
    assert violations(opened.page) == []
