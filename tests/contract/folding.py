"""A disk that takes different spellings of a name for one, and keeps the first, as those of macOS and Windows do."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Fold = Callable[[str], str]

_CALLS = ["open", "mkdir", "stat", "unlink", "remove", "rmdir", "listdir", "scandir"]


def make_fold(monkeypatch: pytest.MonkeyPatch, root: Path, fold: Fold) -> None:
    """From now on the system calls of this process find what lies below the root by any spelling of equal `fold`."""
    listdir, link = os.listdir, os.link

    def found(path: Any, dir_fd: int | None) -> str | None:
        """The path as the disk has it; None for what does not lie below the root."""
        if isinstance(path, int):
            return None
        parent = os.readlink(f"/proc/self/fd/{dir_fd}") if dir_fd is not None else os.getcwd()
        full = os.path.join(parent, os.fspath(path))
        if not full.startswith(f"{root}/"):
            return None
        at = str(root)
        for part in full.removeprefix(f"{at}/").split("/"):
            there = listdir(at) if os.path.isdir(at) else []
            at = os.path.join(at, next((name for name in there if fold(name) == fold(part)), part))
        return at

    def folding(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(path: Any = ".", *args: Any, dir_fd: int | None = None, **options: Any) -> Any:
            if (real := found(path, dir_fd)) is not None:
                return call(real, *args, **options)
            return call(path, *args, **options, **({} if dir_fd is None else {"dir_fd": dir_fd}))

        return wrapper

    def folding_link(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int, follow_symlinks: bool) -> None:
        real = found(source, src_dir_fd), found(target, dst_dir_fd)
        link(real[0] or source, real[1] or target, follow_symlinks=follow_symlinks)

    for call in _CALLS:
        monkeypatch.setattr(os, call, folding(getattr(os, call)))
    monkeypatch.setattr(os, "link", folding_link)
