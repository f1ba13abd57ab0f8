"""The server: who it answers, and what it gives."""

import gzip
import http.client
import json
import threading

import pytest

from recollect.errors import FileError, RecollectError
from recollect.view import format as recording
from recollect.view.server import Server, Shelf
from view import samples


@pytest.fixture
def served(tmp_path):
    path = recording.write(tmp_path / "r.json", samples.document(title="first"))
    (tmp_path / "secret.txt").write_text("secret")
    with Server(Shelf([path])) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server, path
        server.shutdown()
        thread.join()


def ask(server, address, host=None, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.putrequest(method, address, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
    connection.endheaders()
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def test_gives_the_page_and_the_documents(served):
    server, _ = served
    answer, content = ask(server, "/")
    assert answer.status == 200 and b"<!doctype html>" in content
    assert "connect-src 'self'" in answer.headers["Content-Security-Policy"]
    answer, content = ask(server, "/data", host=f"localhost:{server.server_port}")
    assert json.loads(gzip.decompress(content))["documents"][0]["title"] == "first"


def test_listens_on_this_machine_alone(served):
    assert served[0].server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "0.0.0.0:80", "[::1]"])
def test_answers_no_other_name(served, host):
    for address in ("/", "/data", "/state"):
        answer, content = ask(served[0], address, host)
        assert answer.status == 421 and b"first" not in content


@pytest.mark.parametrize(
    "address",
    ["/secret.txt", "/../secret.txt", "/%2e%2e/secret.txt", "/data/../../secret.txt", "//etc/passwd", "/r.json",
     "/data?path=/etc/passwd", "/.", "/data/", "/state/%00"],
)  # fmt: skip
def test_serves_nothing_else(served, address):
    answer, content = ask(served[0], address)
    assert answer.status == 404 and b"secret" not in content and b"root:" not in content


def test_takes_no_orders(served):
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(served[0], "/data", method=method)[0].status == 501
    answer, content = ask(served[0], "/", method="HEAD")
    assert answer.status == 200 and content == b""


def test_tells_of_news(served):
    server, path = served
    before = ask(server, "/state")[1]
    assert ask(server, "/state")[1] == before
    recording.write(path, samples.document(title="second", steps=13))
    assert ask(server, "/state")[1] != before
    assert json.loads(gzip.decompress(ask(server, "/data")[1]))["documents"][0]["title"] == "second"


def test_keeps_the_last_that_was_whole(served):
    server, path = served
    ask(server, "/data")
    path.write_text("{")
    assert json.loads(gzip.decompress(ask(server, "/data")[1]))["documents"][0]["title"] == "first"


def test_what_is_not_there_is_said_at_once(tmp_path):
    with pytest.raises(FileError, match="is not there; give a run folder"):
        Shelf([tmp_path / "nothing"]).documents()


def test_a_port_that_is_taken_is_an_error_with_a_fix(served):
    with pytest.raises(RecollectError, match="--port 0 takes another"):
        Server(served[0].shelf, served[0].server_port)
