"""An S3 server for trials: moto, in memory, one request at a time.

moto checks If-None-Match and then writes, so two requests at once could both win. S3 is atomic. One thread prevents
concurrent requests.
"""

import sys

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server


def main(host: str, port: int) -> None:
    server = make_server(host, port, DomainDispatcherApplication(create_backend_app), threaded=False)
    print(f"S3 on {host}:{server.port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
