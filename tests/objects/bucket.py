#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What boto3 says of a bucket, as JSON: {"objects": {key: sha256}, "uploads": [key, …]}.

    bucket.py ENDPOINT BUCKET
"""
import hashlib
import json
import sys

import boto3

endpoint, bucket = sys.argv[1:]
client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
objects, uploads = {}, []
for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
    for entry in page.get("Contents", ()):
        data = client.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read()
        assert len(data) == entry["Size"]
        objects[entry["Key"]] = hashlib.sha256(data).hexdigest()
for page in client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket):
    uploads += [entry["Key"] for entry in page.get("Uploads", ())]
print(json.dumps({"objects": objects, "uploads": uploads}))
