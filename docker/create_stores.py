"""Creates the bucket and the container `lake` on the local servers of compose.yaml, if they do not exist."""

import os
from contextlib import suppress

from azure.core.exceptions import ResourceExistsError
from azure.storage.blob import BlobServiceClient
from botocore.session import Session

NAME = "lake"


def main() -> None:
    # Endpoint and credentials are in the environment. In us-east-1, creating one's own bucket again is no error.
    Session().create_client("s3").create_bucket(Bucket=NAME)
    azure = BlobServiceClient.from_connection_string(os.environ["AZURE_STORAGE_CONNECTION_STRING"])
    with azure, suppress(ResourceExistsError):
        azure.create_container(NAME)


if __name__ == "__main__":
    main()
