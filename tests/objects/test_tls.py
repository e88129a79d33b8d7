# SPDX-License-Identifier: Apache-2.0
"""TLS by nginx: certificates are verified, with a bundle of the user's; HTTP/2 where it is offered."""
import os
import shutil

from harness import *
from test_content import export, needs_nginx, publish, same_folders, strategies, tree
import stores


def test_a_bundle_takes_the_place_of_the_systems_folder():
    """The server's certificate is in the folder that Debian's libcurl looks in, and not in the user's bundle."""
    needs_namespace("mount over /etc/ssl/certs")
    needs_nginx()
    t = tree()
    name, where = publish(t.dir)
    url, env, out = f"https://127.0.0.1:{stores.tls_port}/{name}", stores.environment(), folder("out")
    system = folder("system")
    shutil.copy(stores.certificate("server"), os.path.join(system, "server.pem"))
    shutil.copy(stores.certificate("other"), os.path.join(system, "ca-certificates.crt"))
    equal(run("openssl", "rehash", system).returncode, 0, "openssl rehash")
    script = 'mount --bind "$1" /etc/ssl/certs && shift && exec "$@"'
    for bundle, status in ((None, 0), ("server", 0), ("other", 1)):
        more = {"CURL_CA_BUNDLE": stores.certificate(bundle)} if bundle else {}
        got = run("unshare", "-m", "sh", "-c", script, "sh", system, reshard, "export", f"{url}/src", f"{out}/{bundle}", "-o",
                  strategies(url), env={**env, **more})
        equal(got.returncode, status, f"the status with the bundle {bundle}, which says {got.stderr!r}")
        check(status == 0 or "certificate" in got.stderr, f"with the bundle {bundle}: {got.stderr!r}")
    shutil.rmtree(where)


def test_certificates_and_http2():
    needs_nginx()
    t = tree(scale=4)
    name, where = publish(t.dir)
    url = f"https://127.0.0.1:{stores.tls_port}/{name}"
    env = stores.environment()
    want = export(t.src, t.options(), "want", env)
    for variable in ("CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "SSL_CERT_FILE"):
        same_folders(export(f"{url}/src", strategies(url), variable, {**env, variable: stores.certificate("server")}), want)
    text = export(f"{url}/src", strategies(url), "none", env, status=1)
    check("certificate" in text and "try: the certificate of its issuer in CURL_CA_BUNDLE" in text, f"no bundle: {text!r}")
    wrong = {**env, "CURL_CA_BUNDLE": stores.certificate("other")}
    text = export(f"{url}/src", strategies(url), "wrong", wrong, status=1)
    check("certificate" in text and "try: the certificate of its issuer in CURL_CA_BUNDLE" in text, f"another: {text!r}")
    # In the sandbox of a mount, too, with connections that are made late.
    with Mount(f"{url}/src", strategies(url) + ",index_cache=no",
               env={**env, "CURL_CA_BUNDLE": stores.certificate("server")}) as m:
        for rank in range(2):
            same_bytes(m.read(rank), t.expected(rank), f"rank {rank}")
    with open(stores.tls_log) as file:
        kinds = {line.split()[0] for line in file if name in line}
    equal(kinds, {"HTTP/2.0"}, "what the requests were made by")
    shutil.rmtree(where)
