"""Small HTML pages of the login, for people who see an address of the API in their browser."""

from __future__ import annotations

from html import escape
from urllib.parse import quote

from fastapi import Request
from starlette.responses import HTMLResponse

from rem.api.errors import http_status
from rem.auth.access import AUTH_PATH
from rem.errors import NotFoundError, RemError
from rem.text import clean_text

PAGE_HEADERS = {
    "Cache-Control": "no-store",
    # Another site must not show the question inside of its own page.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}
MAX_MESSAGE_CHARS = 500
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>REM</title><style>
body {{ font-family: system-ui, sans-serif; max-width: 32rem; margin: 4rem auto; padding: 0 1rem; line-height: 1.5 }}
button, a.button {{ font: inherit; padding: .5rem 1.25rem; margin-right: .5rem }}
</style></head><body><h1>{title}</h1>{body}</body></html>"""


def make_page(title: str, body: str, status: int = 200) -> HTMLResponse:
    """Return a page that loads and runs nothing. The caller has escaped what others wrote into `body`."""
    return HTMLResponse(_PAGE.format(title=escape(title), body=body), status, PAGE_HEADERS)


def prefers_html(request: Request) -> bool:
    """Return whether the client would rather read a page than JSON. `*/*` stands for JSON, as everywhere in the API."""
    qualities: dict[str, float] = {}
    for item in ",".join(request.headers.getlist("accept")).split(","):
        media_type, *parameters = (part.strip().lower() for part in item.split(";"))
        quality = next((text[2:] for text in parameters if text.startswith("q=")), "1")
        try:
            qualities[media_type] = float(quality)
        except ValueError:
            qualities[media_type] = 0.0
    return qualities.get("text/html", 0.0) > qualities.get("application/json", 0.0)


def make_failed_login_page(error: RemError, provider: str, then: str) -> HTMLResponse:
    """Return the page that says why a login failed, with the status of the error and a link to try again.

    `then` is the local path to return to after the login; it may be empty.
    """
    links = ['<a href="/">Back to REM</a>']
    # A provider that does not exist cannot be tried again.
    if not isinstance(error, NotFoundError):
        query = f"?next={quote(then, safe='')}" if then else ""
        links.insert(0, f'<a href="{AUTH_PATH}/{quote(provider, safe="")}/login{escape(query)}">Try again</a>')
    message = escape(clean_text(str(error)[:MAX_MESSAGE_CHARS]))
    body = f"<p>{message}</p><p>{' &nbsp; '.join(links)}</p>"
    page = make_page("The login failed", body, http_status(error))
    page.headers["Vary"] = "Accept"
    return page
