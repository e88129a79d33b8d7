#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A proxy between ReshardFS and a store, which makes the store slow, faulty or both.

    proxy.py UPSTREAM_PORT PORT_FILE PLAN LOG

It listens on a free port of 127.0.0.1, which it writes to PORT_FILE. PLAN is a JSON file that is read before each request:

    latency     seconds before an answer begins
    bandwidth   bytes a second of each connection
    fault       the name of one in FAULTS, or none
    every       of so many requests that may fail one does (1: all)
    only        a part of the request's path; others are left alone
    method      of the request; others are left alone
    first       so many requests with the fault; none: all
    ranges      true: requests without a range are left alone
    drop        headers that answers with a range lack
    blind       true: requests lose their conditions, so that the store answers with the version that it has
    unconditional  true: conditional writes are answered by 501
    region      requests that are signed for another one are answered by "how", 301 or 400, which tells it; or one for each bucket

    to          of the fault "leads": the URL that it leads to, by "status"
    host        true: the store is asked by its address, whatever name the request has

LOG has a line for each request: method, path, range, what was done with it; and when it came and was answered, in seconds; whose
key signed it.
"""
import asyncio
import hashlib
import json
import random
import re
import sys
import time

FAULTS = ("reset", "cut", "stall", "drip", "expired", "500", "503", "429", "403", "404", "301", "307", "whole", "shifted",
          "garbage", "mixed", "leads", "repeats", "half", "lost", "md5", "swallow", "late", "damage", "kms")


class Plan:
    def __init__(self, path):
        self.path = path
        self.count = 0

    def read(self, method, target, ranged):
        try:
            with open(self.path, encoding="utf-8") as file:
                plan = json.load(file)
        except (OSError, ValueError):
            plan = {}
        fault = plan.get("fault")
        if fault == "any":
            fault = random.choice(("reset", "cut", "500", "503", "shifted", "whole"))
        chosen = fault and plan.get("only", "") in target and (ranged or not plan.get("ranges")) \
            and plan.get("method", method) == method
        if chosen:
            self.count += 1
            if self.count % plan.get("every", 1) or self.count > plan.get("first", self.count):
                chosen = False
        return plan, fault if chosen else None


def answer(status, body=b"", headers=()):
    head = [f"HTTP/1.1 {status} Fault", f"Content-Length: {len(body)}", *headers]
    return ("\r\n".join(head) + "\r\n\r\n").encode() + body


def error(status, code, text):
    body = f"<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{text}</Message></Error>".encode()
    return answer(status, body, ["Content-Type: application/xml"])


CANNED = {
    "500": error(500, "InternalError", "We encountered an internal error. Please try again."),
    "503": error(503, "SlowDown", "Please reduce your request rate."),
    "expired": error(400, "ExpiredToken", "The provided token has expired."),
    "429": answer(429, b"", ["Retry-After: 1"]),
    "403": error(403, "AccessDenied", "Access Denied by the proxy"),
    "404": error(404, "NoSuchKey", "The specified key does not exist."),
    "301": answer(301, error(301, "PermanentRedirect", "elsewhere").partition(b"\r\n\r\n")[2],
                  ["x-amz-bucket-region: eu-west-1"]),
    "307": error(307, "TemporaryRedirect", "elsewhere"),
    "garbage": b"\x00\x01nonsense\r\n\r\n",
    # As a store that puts parts together begins an answer before it fails.
    "late": answer(200, b"<?xml version=\"1.0\"?>\n  <Error><Code>InternalError</Code><Message>late</Message></Error>",
                   ["Content-Type: application/xml"]),
}


def elsewhere(plan):
    code = {"301": "PermanentRedirect", "400": "AuthorizationHeaderMalformed"}[plan["how"]]
    return answer(plan["how"], error(plan["how"], code, "elsewhere").partition(b"\r\n\r\n")[2],
                  [f"x-amz-bucket-region: {plan['region']}"])


async def read_head(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    fields = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            fields[name.strip().lower()] = value.strip()
    return head, lines[0], fields


class Proxy:
    def __init__(self, upstream, plan, log):
        self.upstream = upstream
        self.plan = Plan(plan)
        self.log = open(log, "a", encoding="utf-8", buffering=1)
        self.idle = []

    async def connect(self):
        while self.idle:
            reader, writer = self.idle.pop()
            if not reader.at_eof():
                return reader, writer
        return await asyncio.open_connection("127.0.0.1", self.upstream, limit=1 << 20)

    async def send(self, writer, data, plan):
        writer.write(data)
        await writer.drain()
        if plan.get("bandwidth"):
            await asyncio.sleep(len(data) / plan["bandwidth"])

    async def relay_chunks(self, reader, writer, plan):
        size = None
        while size != 0:
            line = await reader.readline()
            size = int(line.split(b";")[0], 16)
            await self.send(writer, line + await reader.readexactly(size + 2), plan)

    async def relay(self, head, body, method, writer, plan, fault):
        """Sends the request on, and the answer back. True if both connections can be used again."""
        for _ in range(3):
            reader, up = await self.connect()
            try:
                up.write(head + body)
                await up.drain()
                raw, line, fields = await read_head(reader)
                break
            except (asyncio.IncompleteReadError, ConnectionError):
                up.close()
        length = 0 if method == "HEAD" else int(fields.get("content-length", "0"))
        if fault == "shifted":
            begin, dash, rest = fields.get("content-range", "").removeprefix("bytes ").partition("-")
            if dash:
                raw = raw.replace(f"{begin}-".encode(), f"{int(begin) + 1}-".encode(), 1)
        if "content-range" in fields:
            for name in plan.get("drop", ()):
                raw = re.sub(rb"(?mi)^%s: [^\r]*\r\n" % name.encode(), b"", raw)
        if fault == "mixed" and "etag" in fields:
            raw = raw.replace(fields["etag"].encode(), b'"another-version"')
        if fault == "kms" and "etag" in fields:
            # As with keys of a service: of no use for a comparison, and for each object another.
            etag = hashlib.md5(fields["etag"].encode()).hexdigest().encode()
            raw = raw.replace(fields["etag"].encode(), b'"%s"\r\nx-amz-server-side-encryption: aws:kms' % etag)
        if fault == "md5" and "etag" in fields:
            raw = raw.replace(fields["etag"].encode(), b'"%s"' % (b"0" * 32))
        if fault == "lost":
            writer.transport.abort()
            up.close()
            return False
        await self.send(writer, raw, plan)
        if method != "HEAD" and "chunked" in fields.get("transfer-encoding", ""):
            await self.relay_chunks(reader, writer, plan)
        left, sent = length, 0
        while left > 0:
            data = await reader.read(min(left, 1 << 18))
            if not data:
                return False
            left -= len(data)
            for i in range(len(data) if fault == "drip" else 0):
                await self.send(writer, data[i:i + 1], plan)
                await asyncio.sleep(0.2)
            if fault in ("cut", "reset", "stall") and sent + len(data) > length // 2:
                await self.send(writer, data[: max(length // 2 - sent, 0)], plan)
                if fault == "stall":
                    await asyncio.sleep(3600)
                if fault == "reset":
                    writer.transport.abort()
                up.close()
                return False
            sent += len(data)
            await self.send(writer, data, plan)
        if fields.get("connection", "").lower() == "close" or line.startswith("HTTP/1.0"):
            up.close()
        else:
            self.idle.append((reader, up))
        return True

    async def serve_one(self, reader, writer):
        head, line, fields = await read_head(reader)
        method, target, _ = line.split(" ", 2)
        plan, fault = self.plan.read(method, target, "range" in fields)
        size = int(fields.get("content-length", "0"))
        if fault == "half":
            self.log.write(f"{method} {target} - half 0 0 -\n")
            await reader.readexactly(size // 2)
            writer.transport.abort()
            return False
        body = await reader.readexactly(size)
        if fault == "damage":
            body = bytes([body[0] ^ 1]) + body[1:]
        who = re.search("Credential=([^/]*)/[^/]*/([^/]*)/", fields.get("authorization", ""))
        region = plan.get("region")
        if isinstance(region, dict):
            region = region.get(target.split("/")[1].partition("?")[0])
        if region and who and who[2] != region:
            fault, plan = plan["how"], {**plan, "region": region}
        came = time.monotonic()
        if plan.get("latency") and plan.get("only", "") in target:
            await asyncio.sleep(plan["latency"])
        self.log.write(f"{method} {target} {fields.get('range', '-')} {fault or 'well'} {came:.4f} {time.monotonic():.4f} {who[1] if who else '-'}\n")
        if plan.get("unconditional") and method in ("PUT", "POST") and fields.keys() & {"if-match", "if-none-match"}:
            writer.write(error(501, "NotImplemented", "A header you provided implies functionality that is not implemented"))
            await writer.drain()
            return True
        if fault in CANNED or fault == "400":
            data = elsewhere(plan) if plan.get("region") else CANNED[fault]
            writer.write(data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if method == "HEAD" else data)
            await writer.drain()
            return fault != "garbage"
        if fault == "swallow":
            writer.write(answer(200, b"", [f'ETag: "{hashlib.md5(body).hexdigest()}"']))
            await writer.drain()
            return True
        if fault == "leads":
            writer.write(answer(plan["status"], b"", [f"Location: {plan['to']}{target}"]))
            await writer.drain()
            return True
        if fault == "repeats":
            token = fields.get("x-amz-security-token", "")
            writer.write(error(403, "InvalidToken", f"no {token[4:]}, no {token[:-3]}, no {token * 20}"))
            await writer.drain()
            return True
        if plan.get("blind"):
            head = re.sub(rb"(?mi)^if-[^\r]*\r\n", b"", head)
        if plan.get("host"):
            head = re.sub(rb"(?mi)^host: [^\r]*", f"Host: 127.0.0.1:{self.upstream}".encode(), head)
        if fault == "whole":
            lines = [l for l in head.split(b"\r\n") if not l.lower().startswith(b"range:")]
            head = b"\r\n".join(lines)
        return await self.relay(head, body, method, writer, plan, fault)

    async def serve(self, reader, writer):
        try:
            while await self.serve_one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, OSError):
            pass
        finally:
            writer.close()


async def main():
    upstream, port_file, plan, log = sys.argv[1:]
    proxy = Proxy(int(upstream), plan, log)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=1 << 20, backlog=512)
    with open(port_file + ".part", "w", encoding="utf-8") as file:
        file.write(str(server.sockets[0].getsockname()[1]))
    import os
    os.rename(port_file + ".part", port_file)
    async with server:
        await server.serve_forever()


asyncio.run(main())
