"""Has s3fs assume an AWS role, for which it has no option: by a session of aiobotocore that can be pickled."""

from typing import Any

from aiobotocore.config import AioConfig
from aiobotocore.credentials import (
    AioAssumeRoleCredentialFetcher,
    AioCredentialResolver,
    AioDeferredRefreshableCredentials,
)
from aiobotocore.session import AioSession
from botocore.exceptions import NoCredentialsError

from dbio_commit.spark.session.hadoop.row import AssumedRole


class RoleSession(AioSession):  # type: ignore[misc]
    """A session whose clients have the role's credentials: requested on first use, and again before they expire."""

    def __init__(self, role: AssumedRole) -> None:
        super().__init__()
        self._role = role
        self.register_component("credential_provider", AioCredentialResolver([_Provider(role)]))

    def __reduce__(self) -> tuple[Any, ...]:
        return RoleSession, (self._role,)

    def dbio_principal(self) -> object:
        """The identity of the role, for caches that must not mix the answers to different roles: `store.principal`."""
        return self._role

    def __repr__(self) -> str:  # fsspec distinguishes filesystems by it
        return f"RoleSession({self._role!r}, {id(self)})"


class _Provider:
    METHOD = "assume-role"

    def __init__(self, role: AssumedRole) -> None:
        self._role = role

    async def load(self) -> Any:
        role, source = self._role, AioSession()
        if role.key and role.secret:
            source.set_credentials(role.key, role.secret)
        credentials = await source.get_credentials()
        if credentials is None:
            raise NoCredentialsError

        def client(service: str, **keys: Any) -> Any:
            region = role.region or source.get_config_variable("region") or "us-east-1"
            config = AioConfig(proxies=dict(role.proxies)) if role.proxies else None
            return source.create_client(service, endpoint_url=role.endpoint, region_name=region, config=config, **keys)

        fetcher = AioAssumeRoleCredentialFetcher(
            client, credentials, role.request["RoleArn"], {k: v for k, v in role.request.items() if k != "RoleArn"}
        )
        return AioDeferredRefreshableCredentials(fetcher.fetch_credentials, self.METHOD)
