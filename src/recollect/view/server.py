"""The page on 127.0.0.1: what it was given and nothing else, asked anew while training continues.

It answers three addresses: ``/``, the page; ``/state``, a text that changes when there is news; ``/data``, the
documents. No part of an address is ever used as a path. A request must name this server as its host: a page elsewhere
that a browser was led to through a name of its own (DNS rebinding) gets nothing.
"""

import hashlib
import http.server
import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from recollect.errors import RecollectError
from recollect.view import page, sources

ADDRESS = "127.0.0.1"
EVERY = 2000
"""Milliseconds between two questions of the page."""

COMMON = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Shelf:
    """The documents of some paths, made again when what lies there has changed."""

    def __init__(self, paths: Sequence[Path], say: Callable[[str], None] = lambda text: None, **options: Any):
        self.paths, self.options, self.say = list(paths), options, say
        self._known: list[tuple[str, dict[str, Any]] | None] = [None] * len(self.paths)
        self._plays: list[dict[int, dict[str, Any]]] = [{} for _ in self.paths]
        self._lock = threading.Lock()

    def state(self) -> str:
        """What tells whether there is news."""
        stamps = "\n".join(sources.stamp(path) for path in self.paths)
        return hashlib.sha256(stamps.encode()).hexdigest()

    def documents(self) -> list[dict[str, Any]]:
        """All documents; where one cannot be made now, as files are being replaced, the one before."""
        with self._lock:
            found = []
            for k, path in enumerate(self.paths):
                stamp, known = sources.stamp(path), self._known[k]
                if known is None or known[0] != stamp:
                    try:
                        made = sources.document(path, say=self.say, known=self._plays[k], **self.options)
                        known = self._known[k] = (stamp, made)
                    except RecollectError as error:
                        if known is None:
                            raise
                        self.say(str(error))
                found.append(known[1])
            return found


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers for one ``Shelf``, which is the server's."""

    server: "Server"
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self) -> None:
        """One of the three addresses."""
        if self.headers.get("Host", "") not in self.server.hosts:
            return self._send(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"this server has another name\n")
        answers = {"/": self._page, "/state": self._state, "/data": self._data}
        if self.path not in answers:
            return self._send(HTTPStatus.NOT_FOUND, "text/plain", b"there is /, /state and /data\n")
        return answers[self.path]()

    do_HEAD = do_GET  # noqa: N815 (the name that http.server looks for)

    def _page(self) -> None:
        text = page.html([], served=True, live={"every": EVERY})
        self._send(HTTPStatus.OK, "text/html; charset=utf-8", text.encode())

    def _state(self) -> None:
        self._send(HTTPStatus.OK, "text/plain", self.server.shelf.state().encode())

    def _data(self) -> None:
        try:
            content = page.pack(self.server.shelf.documents())
        except RecollectError as error:
            return self._send(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"{error}\n".encode())
        return self._send(HTTPStatus.OK, "application/gzip", content)

    def _send(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        more = {"Content-Type": kind, "Content-Length": str(len(content)), "Content-Security-Policy": page.policy(True)}
        for name, value in {**COMMON, **more}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the page asks every two seconds."""


class Server(http.server.ThreadingHTTPServer):
    """A server of a shelf on a port of this machine; 0 takes one that is free."""

    daemon_threads = True

    def __init__(self, shelf: Shelf, port: int = 0):
        try:
            super().__init__((ADDRESS, port), Handler)
        except OSError as error:
            raise RecollectError(
                f"port {port} of {ADDRESS} cannot be had: {error.strerror}; --port 0 takes another"
            ) from error
        self.shelf = shelf
        self.hosts = {f"{name}:{self.server_port}" for name in (ADDRESS, "localhost")}

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{ADDRESS}:{self.server_port}/"
