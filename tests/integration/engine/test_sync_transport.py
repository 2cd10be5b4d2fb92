"""One request for one POST, whatever the other side does; and what is known afterwards."""

from __future__ import annotations

import gzip
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from batches.domain.categories import Category
from batches.domain.outcomes import NotSent, Unknown
from batches.engine import sync_transport
from batches.engine.sync_transport import post
from batches.engine.transport import Answer
from batches.gateways.base import HttpRequest
from wecom_ops.local.files import free_port

BODY = '{"content":"你好"}'.encode()


@dataclass
class Server:
    """Reads one request per connection and then does what the test says."""

    then: Callable[[socket.socket], None]
    listener: socket.socket = field(
        default_factory=lambda: socket.create_server(("127.0.0.1", 0), backlog=8)
    )
    requests: list[tuple[bytes, bytes]] = field(default_factory=list)
    connections: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}/message/sendText"

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection, suppress(OSError):
                connection.settimeout(10)
                if self._read(connection):
                    self.then(connection)

    def _read(self, connection: socket.socket) -> bool:
        data = b""
        while b"\r\n\r\n" not in data:
            part = connection.recv(65536)
            if not part:
                return False
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        if b"content-length: " not in head.lower():
            return False
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        while len(body) < length:
            body += connection.recv(65536)
        self.requests.append((head, body))
        return True


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[socket.socket], None]], Server]]:
    running: list[tuple[Server, threading.Thread]] = []

    def start(then: Callable[[socket.socket], None]) -> Server:
        server = Server(then)
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        running.append((server, thread))
        return server

    yield start
    for server, thread in running:
        server.listener.shutdown(socket.SHUT_RDWR)
        server.listener.close()
        thread.join(10)
        assert not thread.is_alive()


def answer(body: bytes, *, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


def say(data: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(data)


def send(url: str, timeout: float = 5.0) -> Answer | NotSent | Unknown:
    headers = {"Content-Type": "application/json", "WECOM-TOKEN": "s3cret"}
    return post(HttpRequest("POST", url, headers, BODY), timeout=timeout)


def test_post_answered_gives_the_answer(serve) -> None:
    server = serve(say(answer(b'{"code":0}', headers="X-Answer: yes\r\n")))
    result = send(server.url)
    assert isinstance(result, Answer)
    assert (result.status, result.body, result.headers["X-Answer"]) == (200, b'{"code":0}', "yes")
    [(head, body)] = server.requests
    assert body == BODY
    assert head.startswith(b"POST /message/sendText HTTP/1.1\r\n")
    assert b"WECOM-TOKEN: s3cret" in head
    assert b"chunked" not in head.lower()


def test_compressed_answer_is_read(serve) -> None:
    zipped = answer(gzip.compress(b'{"code":0}'), headers="Content-Encoding: gzip\r\n")
    result = send(serve(say(zipped)).url)
    assert isinstance(result, Answer)
    assert result.body == b'{"code":0}'


@pytest.mark.parametrize("status", ["302 Found", "307 Temporary Redirect"])
def test_redirect_is_not_followed(serve, status: str) -> None:
    elsewhere = serve(say(answer(b"")))
    server = serve(say(answer(b"", status=status, headers=f"Location: {elsewhere.url}\r\n")))
    result = send(server.url)
    assert isinstance(result, Answer)
    assert result.status == int(status[:3])
    assert (len(server.requests), elsewhere.connections) == (1, 0)


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize(
    ("then", "category"),
    [
        (lambda _: None, Category.RESET),
        (reset, Category.RESET),
        (say(b"this is not HTTP\r\n\r\n"), Category.RESET),
        (say(answer(b"12345678")[:-3]), Category.UNREADABLE),
        (say(answer(b"not gzip", headers="Content-Encoding: gzip\r\n")), Category.UNREADABLE),
    ],
    ids=["closed", "reset", "no http", "truncated", "not gzip"],
)
def test_post_without_a_readable_answer_is_unknown_and_not_repeated(
    serve, then: Callable[[socket.socket], None], category: Category
) -> None:
    server = serve(then)
    result = send(server.url)
    assert isinstance(result, Unknown)
    assert result.category is category
    assert (server.connections, len(server.requests)) == (1, 1)


def test_no_answer_in_time_is_unknown(serve) -> None:
    release = threading.Event()
    server = serve(lambda _: release.wait(10))
    began = time.monotonic()
    result = send(server.url, timeout=0.4)
    release.set()
    assert isinstance(result, Unknown)
    assert result.category is Category.TIMEOUT
    assert time.monotonic() - began < 3
    assert len(server.requests) == 1


def test_answer_that_drips_is_given_up_at_the_timeout(serve) -> None:
    def drip(connection: socket.socket) -> None:
        connection.sendall(answer(b"x" * 10_000)[:-10_000])
        for _ in range(100):
            connection.sendall(b"x")
            time.sleep(0.1)

    began = time.monotonic()
    result = send(serve(drip).url, timeout=0.5)
    assert isinstance(result, Unknown)
    assert result.category is Category.TIMEOUT
    assert time.monotonic() - began < 3


def test_huge_answer_is_not_read_to_its_end(serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_transport, "MAX_BODY", 1000)
    result = send(serve(say(answer(b"x" * 100_000))).url)
    assert isinstance(result, Unknown)
    assert result.category is Category.UNREADABLE


@pytest.mark.parametrize(
    "url",
    [
        pytest.param(f"http://127.0.0.1:{free_port()}/x", id="nobody listens"),
        "http://nowhere.invalid/x",
        "http://",
        "ftp://127.0.0.1/x",
    ],
)
def test_request_that_cannot_leave_is_not_sent(url: str) -> None:
    result = send(url)
    assert isinstance(result, NotSent)
    assert result.category is Category.UNREACHABLE


def test_tls_that_does_not_come_about_is_not_sent(serve) -> None:
    def close(_: socket.socket) -> None:
        raise AssertionError("a plain request came")

    server = serve(close)
    server._read = lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    result = send(server.url.replace("http:", "https:"))
    assert isinstance(result, NotSent)
    assert server.requests == []


def test_proxies_of_the_environment_are_not_used(serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    assert isinstance(send(serve(say(answer(b"{}"))).url), Answer)
