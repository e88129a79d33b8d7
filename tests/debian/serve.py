#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Serves a folder: in the bucket "tree" of a real S3 server, and behind TLS with a certificate of its own.

    tests/debian/serve.py FOLDER WORK

Prints "S3_PORT TLS_PORT CERTIFICATE", and serves until its input ends.
"""
import os
import shutil
import subprocess
import sys

import boto3

for room in ("objects", "mount", "support"):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", room))
import stores  # noqa: E402

folder, work = sys.argv[1:]
stores.begin(work)
try:
    if stores.s3_port is None or stores.tls_port is None:
        sys.exit("the servers do not start")
    s3 = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{stores.s3_port}", region_name="us-east-1",
                      aws_access_key_id=stores.KEY, aws_secret_access_key=stores.SECRET)
    s3.create_bucket(Bucket="tree")
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            s3.upload_file(path, "tree", os.path.relpath(path, folder))
    shutil.copytree(folder, os.path.join(stores.web, "tree"))
    subprocess.run(["chmod", "-R", "a+rX", stores.web], check=True)  # nginx reads as another user
    print(stores.s3_port, stores.tls_port, stores.certificate("server"), flush=True)
    sys.stdin.read()
finally:
    stores.end()
