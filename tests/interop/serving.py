# SPDX-License-Identifier: Apache-2.0
"""The folders of the cases behind a web server, so that sources and strategies are read from there (--objects)."""
import os
import shutil
import socket
import subprocess
import sys
import time


class Server:
    """nginx for FOLDER, from `with` to its end."""

    def __init__(self, folder):
        self.folder = folder
        self.conf = os.path.join(folder, "nginx")

    def __enter__(self):
        program = shutil.which("nginx") or "/usr/sbin/nginx"
        if not os.path.exists(program):
            sys.exit("nginx is not there; try: scripts/test packages")
        os.mkdir(self.conf)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        user = "user root;" if os.geteuid() == 0 else ""
        with open(os.path.join(self.conf, "conf"), "w", encoding="utf-8") as file:
            file.write(f"""daemon off; {user} pid {self.conf}/pid; error_log {self.conf}/err; worker_processes 1;
events {{ worker_connections 512; }}
http {{
    access_log off; client_body_temp_path {self.conf}; proxy_temp_path {self.conf}; fastcgi_temp_path {self.conf};
    uwsgi_temp_path {self.conf}; scgi_temp_path {self.conf}; default_type application/octet-stream; keepalive_requests 100000;
    server {{ listen 127.0.0.1:{self.port}; location / {{ root {self.folder}; autoindex on; autoindex_format json; }} }}
}}""")
        self.process = subprocess.Popen([program, "-c", os.path.join(self.conf, "conf"), "-e", os.path.join(self.conf, "err")])
        for _ in range(2400):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                time.sleep(0.05)
        sys.exit("nginx does not answer")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def url(self, path):
        """Of a path in the folder, or of several with ':' between; others stay."""
        parts = [f"http://127.0.0.1:{self.port}/{os.path.relpath(p, self.folder)}" if p.startswith(self.folder + "/") else p
                 for p in path.split(":")]
        return ":".join(parts)
