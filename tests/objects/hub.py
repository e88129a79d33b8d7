# SPDX-License-Identifier: Apache-2.0
"""A hub of models that behaves as Hugging Face's documented interface, and the CDN that it leads to, on two ports.

Large files are at the CDN, by a URL that is signed and ends; the hub's redirection there (302) has X-Repo-Commit, X-Linked-Size
and X-Linked-Etag, which the CDN's answers lack: their ETag is another. Small files are on the hub's own host, behind a relative
redirection (307). Lists have pages. test_hub.py shows that huggingface_hub reads from it what ReshardFS reads.
"""
import hashlib
import http.server
import json
import os
import re
import threading
import time
import urllib.parse

import harness

LARGE = 1000  # bytes, from which on a file is at the CDN


def oid(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        self.send_header("Content-Length", headers.pop("Content_Length", len(body)))
        for name, values in headers.items():
            for value in values if isinstance(values, list) else [values]:
                if value is not None:
                    self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send(self, data, **headers):
        """The range that is asked for, or all."""
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not asked:
            return self.answer(200, data, Accept_Ranges="bytes", **headers)
        begin, end = int(asked[1]), min(int(asked[2]) + 1, len(data))
        if begin >= len(data):
            return self.answer(416)
        plan = self.server.hub.plan
        total = len(data) + plan.get("longer", 0)
        if plan.get("cut") == "once" and end - begin > 1:
            plan["cut"] = "done"
            self.close_connection = True
            headers["Content_Length"] = end - begin
            return self.answer(206, data[begin:(begin + end) // 2], Content_Range=f"bytes {begin}-{end - 1}/{total}", **headers)
        return self.answer(206, data[begin:end], Content_Range=f"bytes {begin}-{end - 1}/{total}", **headers)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        # A proxy is asked for whole URLs.
        path, _, query = re.sub(r"^http://[^/]*", "", self.path).partition("?")
        self.server.log.append((self.command, path, self.headers.get("Authorization")))
        self.reply(urllib.parse.unquote(path), path, dict(urllib.parse.parse_qsl(query)))


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, *_):  # clients go away
        pass


class HubHandler(Handler):
    def refuse(self, status, code=None, text=None, **headers):
        self.answer(status, json.dumps({"error": text or ""}).encode(), X_Error_Code=code, X_Error_Message=text,
                    Content_Type="application/json", **headers)

    def reply(self, path, raw, query):
        hub = self.server.hub
        if hub.plan.get("limited"):
            hub.plan["limited"] -= 1
            return self.refuse(429, None, "We had to rate limit you", Retry_After=hub.plan.get("retry_after", 1))
        if hub.mirrors:
            return self.answer(308, Location=hub.mirrors + self.path)
        found = re.match(r"(/api/resolve-cache/models|/api/resolve-cache/datasets|/api/models|/api/datasets|/datasets|)/([^/]+/[^/]+)(/.*)?$", path)
        if not found:
            return self.refuse(404, "RepoNotFound", "Repository not found")
        name = ("datasets/" if "datasets" in found[1] else "") + found[2]
        if name in hub.renamed:
            return self.answer(307, Location=self.path.replace(name, hub.renamed[name]))
        token = self.headers.get("Authorization")
        if name not in hub.models or (hub.private and token != f"Bearer {hub.token}"):
            return self.refuse(404 if token else 401, "RepoNotFound", "Repository not found")
        rest = found[3] or ""
        if found[1].startswith("/api/resolve-cache"):
            return self.small(hub.models[name], *rest[1:].split("/", 1))
        if found[1].startswith("/api"):
            # The revision is one part of the path, encoded.
            action, revision, *below = raw.split("/")[5:]
            commit = hub.commit(name, urllib.parse.unquote(revision))
            if not commit:
                return self.refuse(404, "RevisionNotFound", "Invalid rev id")
            return self.tree(hub, name, commit, query, raw) if action == "tree" else self.revision(hub, name, commit)
        revision, key = rest.removeprefix("/resolve/").split("/", 1)
        return self.resolve(hub, name, hub.commit(name, revision), key, token)

    def revision(self, hub, name, commit):
        files = hub.models[name][commit]
        hub.on_revision()
        self.answer(200, json.dumps({
            "_id": "1", "id": name, "private": hub.private, "gated": bool(hub.gated), "sha": commit, "lastModified":
            "2026-01-01T00:00:00.000Z", "siblings": [{"rfilename": path} for path in sorted(files)]}).encode(),
            Content_Type="application/json")

    def tree(self, hub, name, commit, query, raw):
        files = hub.models[name][commit]
        folders = {os.path.dirname(path) for path in files} - {""}
        entries = [{"type": "directory", "oid": oid(folder.encode()), "size": 0, "path": folder} for folder in sorted(folders)]
        for path, data in sorted(files.items()):
            entry = {"type": "file", "oid": oid(data), "size": len(data), "path": path}
            if len(data) >= LARGE:
                entry |= {"oid": oid(b"a pointer to " + path.encode()), "xetHash": hub.other_hash(data), "lfs": {
                    "oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}}
            entries.append(entry)
        at = int(query.get("cursor", 0))
        link, host = None, self.headers["Host"]
        if at + hub.page < len(entries):
            cursor = at if hub.plan.get("circle") else at + hub.page
            host = hub.plan.get("next", host)
            link = f'<http://{host}{raw}?recursive=true&expand=false&limit={hub.page}&cursor={cursor}{hub.plan.get("long", "")}>; rel="next"'
            link = [link, f'<http://{host}/style.css>; rel="preload"']
        self.answer(200, json.dumps(entries[at:at + hub.page]).encode(), Link=link, Content_Type="application/json")

    def resolve(self, hub, name, commit, key, token):
        if hub.gated:
            return self.refuse(403 if token else 401, "GatedRepo", f"Access to model {name} is restricted")
        if not commit:
            return self.refuse(404, "RevisionNotFound", "Invalid rev id")
        data = hub.models[name][commit].get(key)
        if data is None:
            return self.refuse(404, "EntryNotFound", "Entry not found", X_Repo_Commit=commit)
        headers = {"X_Repo_Commit": commit, "X_Linked_Size": len(data), "X_Linked_Etag":
                   f'"{hashlib.sha256(data).hexdigest() if len(data) >= LARGE else oid(data)}"'} | hub.plan.get("headers", {})
        if len(data) < LARGE:
            kind = "" if name.startswith("datasets/") else "models/"
            to = f"/api/resolve-cache/{kind}{name}/{commit}/{urllib.parse.quote(key)}?etag={oid(data)}"
            return self.answer(307, Location=to, **headers)
        return self.answer(302, b"Found. Redirecting", Location=hub.sign(data), **headers)

    def small(self, model, commit, key):
        data = model[commit][key]
        headers = {"ETag": f'"{oid(data)}"', "X_Repo_Commit": commit}
        self.send(data, **headers | (self.server.hub.plan.get("small", {}) if self.command == "GET" else {}))


class CdnHandler(Handler):
    def reply(self, path, raw, query):
        hub = self.server.hub
        with hub.lock:
            left = hub.signed.get(query.get("Signature"), 0)
            hub.signed[query.get("Signature")] = left - 1
        if left <= 0:
            return self.answer(403, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>")
        data = hub.blobs[path.rsplit("/", 1)[1]]
        etag = f'"{hub.other_hash(data)}"'
        if hub.plan.get("mixed") and left % 2 or hub.plan.get("cut") == "done":
            etag = '"another"'
        self.send(data, ETag=None if hub.plan.get("no_etag") else etag)


class Hub:
    """Runs from `with` to its end. What plan has makes it faulty."""

    def __init__(self, token="hf_tOkEnOfTeStS", page=3):
        self.token, self.page = token, page
        self.models, self.refs, self.renamed, self.blobs, self.signed = {}, {}, {}, {}, {}
        self.private = self.gated = False
        self.mirrors = None  # the URL of another hub
        self.on_revision = lambda: None
        self.uses = 1 << 30  # of each signed URL
        self.plan = {}
        self.lock = threading.Lock()

    def __enter__(self):
        self.servers = []
        for handler in (HubHandler, CdnHandler):
            server = Server(("127.0.0.1", 0), handler)
            server.hub, server.log = self, []
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.servers.append(server)
        self.url, self.cdn = (f"http://127.0.0.1:{server.server_address[1]}" for server in self.servers)
        self.asked, self.fetched = (server.log for server in self.servers)
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def push(self, name, files, ref="main"):
        """A commit with these files, which the branch is then; returns its id."""
        self.models.setdefault(name, {})
        text = json.dumps([name, len(self.models[name]), sorted((p, oid(d)) for p, d in files.items())])
        commit = hashlib.sha1(text.encode()).hexdigest()
        self.models[name][commit] = dict(files)
        self.refs[name, ref] = commit
        return commit

    def push_folder(self, name, folder, ref="main"):
        files = {}
        for base, _, names in os.walk(folder):
            for file in names:
                path = os.path.join(base, file)
                files[os.path.relpath(path, folder)] = harness.read_all(path)
        return self.push(name, files, ref)

    def commit(self, name, revision):
        return revision if revision in self.models[name] else self.refs.get((name, revision))

    @staticmethod
    def other_hash(data):
        return hashlib.sha256(b"chunks of " + data).hexdigest()

    def sign(self, data):
        name = self.other_hash(data)
        with self.lock:
            self.blobs[name] = data
            signature = str(len(self.signed))
            self.signed[signature] = self.uses
        return f"{self.cdn}/xet-bridge-us/{name}?X-Xet-Cas-Uid=public&Expires={int(time.time()) + 3600}&Policy={'x' * 900}&Signature={signature}"
