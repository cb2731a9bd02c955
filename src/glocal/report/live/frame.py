"""What all pages are framed by: the report's style and script, and what keeps them up to date."""

from __future__ import annotations

from importlib import resources

from glocal.report import page
from glocal.report.page.document import asset, header
from glocal.report.page.markup import Child, join, tag

FILES = {"/live.js": "text/javascript", "/live.css": "text/css"}
"""The files that pages load, and their kinds."""


def file(name: str) -> bytes:
    """One of :data:`FILES`."""
    return (resources.files("glocal.report.live") / name.removeprefix("/")).read_bytes()


def policy() -> str:
    """The report's content security policy, and this server's own style, script and answers."""
    rules = dict(page.policy())
    for name in ("style-src", "script-src"):
        rules[name] += " 'self'"
    rules |= {"connect-src": "'self'", "form-action": "'self'", "frame-ancestors": "'none'"}
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def kept_up_to_date(report: str, stamp: str, *, home: bool) -> str:
    """A page that asks for itself again, with a link to the list unless that is its ``home``.

    ``stamp`` is that of what it shows.
    """
    head, closed, rest = report.partition("</head>")
    body, ended, end = rest.rpartition("</body>")
    style = tag("link", rel="stylesheet", href="/live.css")
    script = tag("script", src="/live.js", data_stamp=stamp, defer=True)
    if not home:
        body = body.replace("<header>", f"<header>{HOME}", 1)  # the first one is the page's own
    return f"{head}{style}{closed}{body}{CONNECTION}{script}{ended}{end}"


def begun_with(report: str, *content: Child) -> str:
    """A page with something before its content."""
    before, start, after = report.partition(MAIN)
    return f"{before}{start}{join(*content)}{after}"


MAIN = '<main id="main" tabindex="-1">'

HOME = tag("a", "All runs", href="/", class_="home")

CONNECTION = tag("p", id="connection", role="status", hidden=True)
"""Where it is said that the server does not answer."""


def document(title: str, *content: Child) -> str:
    """A page of ours, framed as a report is."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} – glocal"),
        tag("style", asset("style.css")),
    )
    body = tag(
        "body",
        tag("a", "Skip to the content", href="#main", class_="skip"),
        header(title),
        tag("main", *content, id="main", tabindex="-1"),
        tag("script", asset("script.js")),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"
