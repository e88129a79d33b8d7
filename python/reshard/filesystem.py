# SPDX-License-Identifier: Apache-2.0
"""Views for fsspec, as the protocol "reshard"."""
from __future__ import annotations

from typing import Any, Optional

from fsspec import AbstractFileSystem

from .view import Option, View, open


# The storage options of other file systems of fsspec that have a keyword of reshard.View with the same meaning.
_SAME_AS = {"anon": "anonymous", "endpoint_url": "endpoint", "profile": "profile"}


def _chained(fo: str, protocol: Optional[str], options: "dict[str, Any]") -> "tuple[str, dict[str, Option]]":
    """The source, and its options, of the URL behind '::': what fsspec has made of it."""
    if protocol in ("s3", "s3a", "hf"):
        fo = f"{'s3' if protocol == 's3a' else protocol}://{fo}"
    elif protocol not in (None, "file", "local", "http", "https"):
        raise ValueError(f"a checkpoint cannot be read by {protocol}://; try: a path, s3://, hf://, https:// or "
                         "http:// behind '::'")
    options = {**options, **options.get("client_kwargs", {})} if protocol in ("s3", "s3a") else options
    known = _SAME_AS if protocol in ("s3", "s3a") else {}
    for name in options:
        if name not in known and name not in ("client_kwargs", "auto_mkdir"):
            raise ValueError(f"{protocol}:// has the option {name}, which a view does not know; try: the environment "
                             "for credentials, and keywords of reshard.View for all else")
    return fo, {known[name]: value for name, value in options.items() if name in known}


class ReshardFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """A view as a read-only file system of fsspec.

    fsspec.filesystem("reshard", source="src", src_strategy="a.ckpt", dst_strategy="b.ckpt"): source and the options
    are those of reshard.View. In a chain of URLs, "reshard://rank_0/checkpoint_0.ckpt::file:///data/src", the second
    one is the source. The view is opened at once, and closed with the last reference to it.
    """

    protocol = "reshard"
    cachable = False  # a source may change between two of them
    async_impl = False

    def __init__(self, source: Optional[str] = None, fo: Optional[str] = None, target_protocol: Optional[str] = None,
                 target_options: "Optional[dict[str, Any]]" = None, **options: Option) -> None:
        super().__init__()
        if (source is None) == (fo is None):
            raise ValueError("a view has one source; try: source=, or '::' and a URL behind the path")
        more: "dict[str, Option]" = {}
        if source is None:
            source, more = _chained(str(fo), target_protocol, target_options or {})
        self.view = View(source, **{**more, **options})

    def __reduce__(self) -> Any:
        self.view.__reduce__()  # refuses what another process cannot open
        return super().__reduce__()

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = str(path)
        if text.startswith("reshard://"):
            text = text[len("reshard://"):]
        return "/" + text.strip("/")

    def _describe(self, path: str, is_dir: Optional[bool] = None) -> dict[str, Any]:
        attributes = self.view.stat(path)
        folder = is_dir if is_dir is not None else self.view.isdir(path)
        return {"name": path, "size": 0 if folder else attributes.st_size, "type": "directory" if folder else "file",
                "mtime": attributes.st_mtime, "mode": attributes.st_mode, "ino": attributes.st_ino}

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        return self._describe(self._strip_protocol(path))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        if not self.view.isdir(path):
            return [self.info(path) if detail else path]
        found = [(f"{path.rstrip('/')}/{entry.name}", entry.is_dir) for entry in self.view.scandir(path)]
        return [self._describe(name, is_dir) for name, is_dir in found] if detail else [name for name, _ in found]

    def exists(self, path: str, **kwargs: Any) -> bool:
        return self.view.exists(self._strip_protocol(path))

    def modified(self, path: str) -> Any:
        import datetime

        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], tz=datetime.timezone.utc)

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, autocommit: bool = True,
              cache_options: Any = None, **kwargs: Any) -> Any:
        if mode != "rb":
            raise OSError(30, "a view is read-only", path)
        return open(self.view, path)

    def cat_file(self, path: str, start: Optional[int] = None, end: Optional[int] = None, **kwargs: Any) -> bytes:
        with open(self.view, self._strip_protocol(path)) as file:
            begin, stop, _ = slice(start, end).indices(self.view.stat(file.raw.name).st_size)
            return file.pread(max(0, stop - begin), begin)
