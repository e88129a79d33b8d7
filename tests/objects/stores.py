# SPDX-License-Identifier: Apache-2.0
"""Real stores for the tests: moto's S3 server, nginx for plain ranges, and the proxy that makes them faulty."""
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

import harness

HERE = os.path.dirname(os.path.abspath(__file__))
python = os.environ.get("RFS_OBJECTS_PYTHON") or sys.executable
KEY, SECRET, TOKEN = "AKIAOBJECTSTEST", "oBjEcTs+sEcReT/vAlUe", "oBjEcTs-tOkEn-vAlUe"

moto_port = nginx_port = None
web = None  # the folder that nginx serves
processes = []


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def answers(port, process):
    for _ in range(400):
        if process.poll() is not None:
            return False
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        except OSError:
            time.sleep(0.05)
    return False


def begin(folder):
    """Starts the servers, once for all tests; says what is missing."""
    global moto_port, nginx_port, web
    moto_port = free_port()
    words = [python, "-c", "from moto.server import main; import sys; main(sys.argv[1:])", "-H", "127.0.0.1",
             "-p", str(moto_port)]
    with open(os.path.join(folder, "moto.log"), "w") as log:
        processes.append(subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL))
    if not answers(moto_port, processes[-1]):
        print(f"moto does not start: see {python} -m pip install 'moto[server,s3]'", file=sys.stderr)
        moto_port = None
    if shutil.which("nginx") or os.path.exists("/usr/sbin/nginx"):
        begin_nginx(folder)


def begin_nginx(folder):
    global nginx_port, web
    nginx_port, web = free_port(), os.path.join(folder, "web")
    os.mkdir(web)
    os.chmod(folder, 0o755)
    with open(os.path.join(folder, "nginx.conf"), "w") as file:
        file.write(f"""daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.err; worker_processes 2;
events {{ worker_connections 512; }}
http {{
    access_log off; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder}; default_type application/octet-stream; keepalive_requests 100000;
    server {{
        listen 127.0.0.1:{nginx_port};
        location / {{ root {web}; autoindex on; }}
        location /json/ {{ alias {web}/; autoindex on; autoindex_format json; }}
    }}
}}""")
    words = [shutil.which("nginx") or "/usr/sbin/nginx", "-c", os.path.join(folder, "nginx.conf"), "-e",
             os.path.join(folder, "nginx.err")]
    processes.append(subprocess.Popen(words, stdin=subprocess.DEVNULL))
    if not answers(nginx_port, processes[-1]):
        nginx_port = None


def end():
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait(10)


def environment(endpoint=None, **more):
    """Of a program that reads objects. Nothing of the user's own counts."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "RESHARDFS_")) and "proxy" not in k.lower()}
    env.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET, AWS_SESSION_TOKEN=TOKEN,
               AWS_CONFIG_FILE="/dev/null", AWS_SHARED_CREDENTIALS_FILE="/dev/null",
               AWS_EC2_METADATA_DISABLED="true", AWS_ENDPOINT_URL=endpoint or f"http://127.0.0.1:{moto_port}")
    env.update(more)
    return {k: v for k, v in env.items() if v is not None}


def put(bucket, key, data, **headers):
    request(f"/{bucket}/{urllib.request.quote(key)}", data, **headers)


def request(path, data=b"", method="PUT", **headers):
    what = urllib.request.Request(f"http://127.0.0.1:{moto_port}{path}", data=data, method=method,
                                  # Else the server takes the body for a form.
                                  headers={**headers, "Content-Type": "application/octet-stream",
                                           "Authorization": f"AWS4-HMAC-SHA256 Credential={KEY}/20260101/us-east-1/s3/"
                                                            "aws4_request, SignedHeaders=host, Signature=0"})
    with urllib.request.urlopen(what) as answer:
        return answer.read()


def upload(folder, bucket=None, prefix="run", acl="private"):
    """Everything in a folder as objects; returns its URL."""
    harness.need(moto_port, "moto is missing")
    bucket = bucket or "b-" + os.path.basename(harness.place).lower().replace("_", "-")[-50:].strip("-")
    request(f"/{bucket}", **{"x-amz-acl": acl})
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            put(bucket, f"{prefix}/{os.path.relpath(path, folder)}", harness.read_all(path), **{"x-amz-acl": acl})
    return f"s3://{bucket}/{prefix}"


class Proxy:
    """Between the programs and a store, from `with` to its end. plan() says what is wrong with it."""

    def __init__(self, upstream=None, **plan):
        self.upstream = upstream or moto_port
        self.folder = harness.folder("proxy")
        self.plan_path, self.log_path = (os.path.join(self.folder, name) for name in ("plan", "log"))
        self.plan(**plan)

    def plan(self, **plan):
        with open(self.plan_path + ".new", "w") as file:
            json.dump(plan, file)
        os.rename(self.plan_path + ".new", self.plan_path)

    def __enter__(self):
        port = os.path.join(self.folder, "port")
        self.process = subprocess.Popen([sys.executable, os.path.join(HERE, "proxy.py"), str(self.upstream), port,
                                         self.plan_path, self.log_path], stdin=subprocess.DEVNULL)
        harness.eventually(lambda: os.path.exists(port), "the proxy begins")
        self.url = f"http://127.0.0.1:{harness.read_all(port).decode()}"
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()

    def requests(self):
        with open(self.log_path, encoding="utf-8") as file:
            return [line.split() for line in file]

    def forget(self):
        os.truncate(self.log_path, 0)
