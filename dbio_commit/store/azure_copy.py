"""Copies blobs within a storage account of Azure by Copy Blob, which may continue after the service has answered.

A blob whose copy is pending may already show its final size. So only the status of a copy proves that it is whole.
"""

import asyncio
from contextlib import suppress
from time import monotonic
from typing import Any
from urllib.parse import unquote

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, HttpResponseError, ResourceExistsError, ResourceModifiedError

STALLED_S = 60.0
"""How long a pending copy may make no progress, in s. Within an account, a copy usually ends with its request."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
"""The pauses between looks at a pending copy, in s. Each is twice as long as the one before."""

SOURCE_LIMIT = 2048
"""The longest URL of a source that the service takes, in bytes."""

_TAKEN = ("BlobAlreadyExists", "PendingCopyOperation", "ConditionNotMet", "TargetConditionNotMet")


async def copy_blob(url: str, blob: Any) -> bool:
    """Copies the blob of this URL, and returns when the copy is whole. False if another blob is there.

    An existing blob is never replaced, so a whole blob never becomes a pending one. If a copy of the same source is
    already there, for example of a request whose answer was lost, the call waits for it. Raises the SDK's errors, and
    OSError for a copy that fails or stands still; then there is no blob.
    """
    try:
        begun = await blob.start_copy_from_url(url, match_condition=MatchConditions.IfMissing)
        copy_id, status = begun["copy_id"], begun["copy_status"]
    except HttpResponseError as error:
        code = getattr(error, "error_code", None)
        if code == "CannotVerifyCopySource" and error.status_code != 404:  # the SDK takes it for an absent blob
            raise OSError(f"the service may not read the source: {error.message}") from None
        if code not in _TAKEN:
            raise
        found = (await blob.get_blob_properties()).copy
        if found.status not in ("pending", "success") or unquote(found.source or "") != unquote(url):
            await abort_pending(blob)
            return False
        copy_id, status = found.id, found.status
    if status == "success":
        return True
    try:
        await _wait(blob, copy_id)
    except (AzureError, OSError):
        if await _give_up(blob, copy_id):
            return True
        raise
    return True


async def _wait(blob: Any, copy_id: str) -> None:
    pause_s, progress, since = _FIRST_PAUSE_S, "", monotonic()
    while True:
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        copy = (await blob.get_blob_properties()).copy
        if copy.id != copy_id:
            raise OSError("another process has replaced the copy")
        if copy.status == "success":
            return
        if copy.status != "pending":
            raise OSError(
                f"the copy has ended as {copy.status}: {copy.status_description or 'the service says no more'}"
            )
        if copy.progress != progress:
            progress, since = copy.progress, monotonic()
        elif monotonic() - since >= STALLED_S:
            raise OSError(f"the copy was aborted, since it stood still for {STALLED_S:.0f} s at {progress} bytes")


async def _give_up(blob: Any, copy_id: str) -> bool:
    """Aborts the copy, and deletes the blob that an aborted copy leaves. True if the copy has succeeded meanwhile.

    A copy that has succeeded stays: another process may already use it.
    """
    with suppress(ResourceExistsError):  # it is not pending any more
        await blob.abort_copy(copy_id)
    found = await blob.get_blob_properties()
    if found.copy.id != copy_id:
        return False
    if found.copy.status in ("aborted", "failed"):
        with suppress(ResourceModifiedError):
            await blob.delete_blob(etag=found.etag, match_condition=MatchConditions.IfNotModified)
    return bool(found.copy.status == "success")


async def abort_pending(blob: Any) -> None:
    """Aborts a pending copy that an interrupted process has left: until then, the blob cannot be changed."""
    found = (await blob.get_blob_properties()).copy
    if found.status == "pending":
        with suppress(ResourceExistsError):
            await blob.abort_copy(found.id)


def is_pending(error: HttpResponseError) -> bool:
    """Whether the service refused a change because a copy to the blob is pending."""
    return bool(getattr(error, "error_code", None) == "PendingCopyOperation")
