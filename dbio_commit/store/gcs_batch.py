"""Google's batch requests, which delete many objects at once: their bodies and answers, in MIME. Pure."""

import re
from collections.abc import Sequence
from email.parser import BytesParser

NO_BUCKET = "bucket does not exist"
"""In the service's message for 404 if the bucket is missing. Any other 404 is about an object."""


def format_deletions(urls: Sequence[str], boundary: str) -> bytes:
    """The body of a request that deletes many objects, which are numbered from 0."""
    parts = (
        f"--{boundary}\r\nContent-Type: application/http\r\nContent-ID: <dbio+{number}>\r\n\r\n"
        f"DELETE {url} HTTP/1.1\r\n\r\n\r\n"
        for number, url in enumerate(urls)
    )
    return f"{''.join(parts)}--{boundary}--\r\n".encode()


_NUMBER = re.compile(r"\+(\d{1,9})>\s*$")
_GONE = re.compile(rf"HTTP/[\d.]+ (?:2\d\d|404(?!.*{NO_BUCKET}))\b", re.DOTALL)


def parse_deleted(content_type: str, answer: bytes) -> set[int]:
    """The numbers of the objects that the service deleted or did not find, from its answer."""
    message = BytesParser().parsebytes(f"Content-Type: {content_type}\r\n\r\n".encode() + answer)
    numbers = set()
    for part in message.walk():
        number = _NUMBER.search(str(part.get("Content-ID", "")))
        if number and _GONE.match(str(part.get_payload()).lstrip()):
            numbers.add(int(number[1]))
    return numbers
