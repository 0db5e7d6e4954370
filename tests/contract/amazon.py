"""What S3 does and moto does not: it refuses single keys of a deletion, and lists uploads by pages."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from urllib.parse import urlsplit
from wsgiref.types import StartResponse, WSGIEnvironment
from xml.etree import ElementTree

import pytest
from werkzeug import Request, Response
from werkzeug.serving import make_server

from tests.front import _forward_to, _Handler
from tests.servers import S3Server

XML = "{http://s3.amazonaws.com/doc/2006-03-01/}"
UPLOADS_PER_PAGE = 2


class Amazon:
    """A WSGI application in front of moto."""

    def __init__(self, server: S3Server) -> None:
        self.deletions: list[list[str]] = []
        """The keys of each request, without their directories."""
        self.refused: dict[str, list[str]] = {}
        """By the name of a key: the error codes that its next deletions meet."""
        self.stuck = False
        """Whether every page of uploads is the first."""
        self.hides_absence = False
        """Whether what is not there is refused, as to those who may list the bucket with some prefixes only."""
        self.refuses_lists = False
        self.requests: list[str] = []
        """The methods, and the prefixes of lists."""
        self._moto = _forward_to(urlsplit(server.endpoint_url).port or 0, keep=server)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterator[bytes]:
        request = Request(environ)
        is_list = "list-type" in request.args
        self.requests.append(f"LIST {request.args['prefix'].rpartition('/')[2]}" if is_list else request.method)
        if request.method == "POST" and "delete" in request.args:
            answer = self._delete(request)
        elif request.method == "GET" and "uploads" in request.args:
            answer = self._list_uploads(request)
        elif is_list and self.refuses_lists:
            answer = _denied(request)
        else:
            answer = Response.from_app(self._moto, environ, buffered=True)
            if self.hides_absence and answer.status_code == 404 and request.method in ("GET", "HEAD"):
                answer = _denied(request)
        return answer(environ, start_response)  # type: ignore[return-value]

    def _delete(self, request: Request) -> Response:
        body = ElementTree.fromstring(request.get_data())
        keys = {item: item.findtext(f"{XML}Key") or "" for item in body.findall(f"{XML}Object")}
        self.deletions.append([key.rpartition("/")[2] for key in keys.values()])
        errors = ""
        for item, key in keys.items():
            if codes := self.refused.get(key.rpartition("/")[2]):
                body.remove(item)
                errors += f"<Error><Key>{key}</Key><Code>{codes.pop(0)}</Code><Message>Injected.</Message></Error>"
        answer = "<DeleteResult></DeleteResult>"
        if body.find(f"{XML}Object") is not None:
            answer = self._forward(request, ElementTree.tostring(body, default_namespace=XML[1:-1])).decode()
        return Response(answer.replace("</DeleteResult>", f"{errors}</DeleteResult>"), content_type="application/xml")

    def _list_uploads(self, request: Request) -> Response:
        answer = ElementTree.fromstring(self._forward(request, b""))
        after = (request.args.get("key-marker", ""), request.args.get("upload-id-marker", ""))
        uploads = {}
        for upload in answer.findall(f"{XML}Upload"):
            answer.remove(upload)
            uploads[upload.findtext(f"{XML}Key") or "", upload.findtext(f"{XML}UploadId") or ""] = upload
        rest = sorted(place for place in uploads if place > after or self.stuck)
        page = rest[:UPLOADS_PER_PAGE]
        answer.extend(uploads[place] for place in page)
        is_truncated = len(rest) > len(page)
        key, upload_id = page[-1] if is_truncated else ("", "")
        said = {"IsTruncated": str(is_truncated).lower(), "NextKeyMarker": key, "NextUploadIdMarker": upload_id}
        for name, text in said.items():
            for old in answer.findall(f"{XML}{name}"):
                answer.remove(old)
            ElementTree.SubElement(answer, f"{XML}{name}").text = text
        return Response(ElementTree.tostring(answer), content_type="application/xml")

    def _forward(self, request: Request, body: bytes) -> bytes:
        environ = {**request.environ, "wsgi.input": BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        environ["front.headers"] = [(k, v) for k, v in environ["front.headers"] if k.lower() != "content-length"]
        return Response.from_app(self._moto, environ, buffered=True).get_data()


def _denied(request: Request) -> Response:
    xml = "<?xml version='1.0' encoding='utf-8'?><Error><Code>AccessDenied</Code><Message>No.</Message></Error>"
    return Response("" if request.method == "HEAD" else xml, 403, content_type="application/xml")


@contextmanager
def amazon(server: S3Server) -> Iterator[tuple[Amazon, str]]:
    """The application, and the endpoint at which it serves."""
    if "DBIO_TEST_S3_PORT" in os.environ:
        pytest.skip("it changes what the client signed, and leaves the pages to moto")
    app = Amazon(server)
    front = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Handler)
    thread = threading.Thread(target=front.serve_forever)
    thread.start()
    try:
        yield app, f"http://127.0.0.1:{front.server_port}"
    finally:
        front.shutdown()
        thread.join()
        front.server_close()
