"""The files in deploy/ are what they say they are, and agree with the server."""

import configparser
import contextlib
import http.client
import re
import shutil
import socket
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from processes import free_port
from serving import until
from test_flags import FLAGS

from dragoman.config import update
from dragoman.config.serve import ServeConfig
from dragoman.server.app import LARGE_ROOM, SMALL_ROOM
from dragoman.server.files import MAX_WAITING
from dragoman.server.listening import MAX_CONNECTIONS, NOTICE
from dragoman.server.metrics import Metrics
from dragoman.server.protocol import SENT_AHEAD, Connections
from dragoman.server.reading import MAX_BODY, MAX_DOCUMENT
from dragoman.server.run import KEEP_ALIVE, LAST_STEP, MAX_HEAD
from dragoman.server.table import ROUTES

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PATHS = {route.path for route in ROUTES}
MODEL_ROOM = 3 << 29  # bytes: Python, its libraries and a model
UNIT = (DEPLOY / "dragoman.service").read_text()


def objects() -> dict[str, Any]:
    """What kubernetes.yaml describes, by kind."""
    return {one["kind"]: one for one in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())}


def test_deployment_files_are_on_the_page_about_serving():
    page = (ROOT / "docs" / "serving.md").read_text()
    assert {file.name for file in DEPLOY.iterdir()} == set(re.findall(r"\]\(\.\./deploy/([^)]+)\)", page))


@pytest.mark.parametrize(
    "settings", [(DEPLOY / "serve.toml").read_text(), objects()["ConfigMap"]["data"]["serve.toml"]]
)
def test_deployment_settings_are_accepted(settings: str):
    config = update(ServeConfig(), tomllib.loads(settings), "serve.toml")
    config.check_access()
    assert config.api_keys
    assert config.state
    assert "translate.example.org" in config.host_name


def test_deployment_commands_have_flags_that_exist():
    commands = re.findall(r"dragoman serve (.*)", "".join(file.read_text() for file in DEPLOY.iterdir()))
    flags = {flag for command in commands for flag in re.findall(r"(?<!\S)--?[a-z][a-z-]*", command)}
    assert {"--help", "--api-keys", "--new-key"} <= flags <= {"--help", *FLAGS["serve"].split()}


def test_systemd_unit_is_valid(tmp_path: Path):
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read_string(UNIT)
    assert int(unit["Service"]["TimeoutStopSec"]) > NOTICE + ServeConfig().grace + LAST_STEP
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd is not installed")
    copy = tmp_path / "dragoman.service"  # with a command that exists
    for line, fault in (("", ""), ("ProtectSistem=strict\n", "ProtectSistem")):
        copy.write_text(
            UNIT.replace("/opt/dragoman/bin/dragoman", "/bin/true").replace("[Install]", line + "[Install]")
        )
        ran = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
        assert (fault in ran.stderr) if fault else (ran.returncode, "dragoman.service:" in ran.stderr) == (0, False)


def test_image_is_made_of_files_that_exist_and_starts_the_server():
    lines = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    seen = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    for name, rest in steps:
        if name == "COPY" and not rest.startswith("--from"):
            assert all((ROOT / source).exists() and f"!{source}" in seen for source in rest.split()[:-1]), rest
    last = dict(steps)
    assert last["ENTRYPOINT"] == '["/opt/dragoman/bin/dragoman", "serve"]'
    assert set(re.findall(r"--[a-z-]+", last["CMD"])) <= set(FLAGS["serve"].split())
    assert last["USER"].isdigit()
    assert "/health/live" in last["HEALTHCHECK"]


def test_kubernetes_asks_for_what_is_there():
    found = objects()
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    probes = [container[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert {probe["path"] for probe in probes} <= PATHS
    assert {probe["port"] for probe in probes} == {found["Service"]["spec"]["ports"][0]["targetPort"]} == {"http"}
    assert container["ports"][0]["containerPort"] == ServeConfig().port
    assert container["readinessProbe"]["periodSeconds"] < NOTICE
    assert pod["terminationGracePeriodSeconds"] > NOTICE + ServeConfig().grace + LAST_STEP
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    (metric,) = found["HorizontalPodAutoscaler"]["spec"]["metrics"]
    assert f"# TYPE {metric['pods']['metric']['name']} gauge" in Metrics().text().decode()
    labels = found["Deployment"]["spec"]["selector"]["matchLabels"]
    assert (
        labels
        == found["Service"]["spec"]["selector"]
        == found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]
    )


@pytest.mark.parametrize("name", ["nginx.conf", "Caddyfile"])
def test_proxies_keep_to_the_times_and_sizes_of_the_server(name: str):
    text = (DEPLOY / name).read_text()
    assert text.count("{") == text.count("}") > 2
    assert f"127.0.0.1:{ServeConfig().port}" in text
    assert int(re.findall(r"(?:client_max_body_size|max_size) (\d+)M?i?[Bm]", text)[0]) << 20 > MAX_DOCUMENT
    assert int(re.findall(r"keepalive(?:_timeout)? (\d+)s", text)[0]) < KEEP_ALIVE
    assert float(re.findall(r"(?:proxy_read_timeout|response_header_timeout) (\d+)s", text)[0]) > ServeConfig().deadline
    assert set(re.findall(r"/(?:health/\w+|metrics)", text)) <= PATHS


def test_image_reads_imported_models_and_names_packages_that_exist():
    (extras,) = re.findall(r"pip install .* '\.\[(.*)\]'", (DEPLOY / "Dockerfile").read_text())
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"serve", "import"} <= set(extras.split(",")) <= set(known)


@pytest.mark.parametrize(
    ("settings", "address", "is_proxy"),
    [
        ((DEPLOY / "serve.toml").read_text(), "127.0.0.1", True),
        ((DEPLOY / "serve.toml").read_text(), "172.17.0.1", True),  # the host, as a container sees it
        ((DEPLOY / "serve.toml").read_text(), "172.17.0.2", False),  # another container
        (objects()["ConfigMap"]["data"]["serve.toml"], "10.1.2.3", True),
    ],
)
def test_settings_trust_the_proxy_where_it_connects_from(settings: str, address: str, is_proxy: bool):
    config = update(ServeConfig(), tomllib.loads(settings), "serve.toml")
    assert (Connections(8, config.proxy).holder((address, 7)) != address) == is_proxy


def test_memory_limit_has_room_for_all_that_clients_may_hold():
    """What is received, connections with their answers, requests and documents; and the rest for models."""
    (container,) = objects()["Deployment"]["spec"]["template"]["spec"]["containers"]
    limit = int(container["resources"]["limits"]["memory"].removesuffix("Gi")) << 30
    config = update(ServeConfig(), tomllib.loads(objects()["ConfigMap"]["data"]["serve.toml"]), "serve.toml")
    connections = MAX_CONNECTIONS * (2 * SENT_AHEAD + MAX_HEAD)  # the system counts twice what it buffers
    requests = config.requests // 2 * (MAX_DOCUMENT + MAX_BODY) + MAX_WAITING * MAX_DOCUMENT
    assert config.processes == 1
    assert SMALL_ROOM + LARGE_ROOM + connections + requests + (config.cache << 20) < limit - MODEL_ROOM


QUERY = "api_key=SECRETKEY&q=Private+text&source=en&target=ko"
LEAKED = ("SECRETKEY", "Private", "0123456789abcdef")


def ask_each(port: int) -> list[int]:
    """Send what has keys and texts in it, with nobody behind the proxy, and one request that is too large."""
    statuses = []
    for method, path, size in (
        ("POST", f"/translate?{QUERY}", 0),
        ("GET", "/deeplx?token=SECRETKEY", 0),
        ("GET", "/download_file/0123456789abcdef.Private.txt", 0),
        ("GET", "/api/v1/documents/0123456789abcdef/content", 0),
        ("POST", f"/translate?{QUERY}", 12 << 20),
    ):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        headers = {"Host": "translate.example.org", "Authorization": "Bearer SECRETKEY", "Content-Length": str(size)}
        connection.request(method, path, None, headers)
        statuses.append(connection.getresponse().status)
        connection.close()
    return statuses


@contextlib.contextmanager
def proxy(command: list[str], port: int, output: Path) -> Iterator[None]:
    """Run a proxy that listens on a port."""

    def listens() -> bool:
        assert process.poll() is None, output.read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    with output.open("w") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            until(listens)
            yield
        finally:
            process.terminate()


@pytest.mark.parametrize("leaks", [False, True], ids=["as it is", "control: with an error log"])
def test_nginx_logs_its_errors_without_keys_and_texts(tmp_path: Path, leaks: bool):
    if not (nginx := shutil.which("nginx", path="/usr/sbin:/usr/bin")):
        pytest.skip("nginx is not installed")
    port, nobody = free_port(), free_port()
    config = re.sub(r" +(listen \[|ssl_).*\n", "", (DEPLOY / "nginx.conf").read_text())
    config = config.replace("listen 443 ssl", f"listen 127.0.0.1:{port}").replace(":5000", f":{nobody}")
    config = config.replace("/var/log/nginx", str(tmp_path))
    if leaks:
        config = config.replace("error_log /dev/null emerg", f"error_log {tmp_path}/error.log")
    (tmp_path / "dragoman.conf").write_text(config)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = "".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in kinds)
    (tmp_path / "nginx.conf").write_text(
        f"daemon off; error_log {tmp_path}/main.log info; pid {tmp_path}/pid; events {{}} "
        f"http {{ {folders} include {tmp_path}/dragoman.conf; }}"
    )
    command = [nginx, "-c", str(tmp_path / "nginx.conf"), "-e", str(tmp_path / "main.log")]
    with proxy(command, port, tmp_path / "output.log"):
        assert ask_each(port) == [502, 502, 502, 502, 413]
    logged = "".join(file.read_text() for file in tmp_path.glob("*.log"))
    lines = (tmp_path / "dragoman.log").read_text().splitlines()
    assert [re.findall(r"\] (\S+ \S+ \d+) .* upstream (\S+) ", line) for line in lines] == [
        [("POST /translate 502", "502")],
        [("GET /deeplx 502", "502")],
        [("GET /download_file 502", "502")],
        [("GET /api/v1/documents 502", "502")],
        [("POST /translate 413", "-")],
    ]
    assert any(secret in logged for secret in LEAKED) == leaks


@pytest.mark.parametrize("leaks", [False, True], ids=["as it is", "control: without a filter"])
def test_caddy_logs_its_errors_without_keys_and_texts(tmp_path: Path, leaks: bool):
    if not (caddy := shutil.which("caddy")):
        pytest.skip("caddy is not installed")
    port, nobody = free_port(), free_port()
    config = (DEPLOY / "Caddyfile").read_text().replace("translate.example.org", f"http://translate.example.org:{port}")
    config = config.replace(":5000", f":{nobody}").replace("{\n", "{\n\tadmin off\n", 1)
    if leaks:
        config = config.replace("request>uri delete", "request>none delete")
    (tmp_path / "Caddyfile").write_text(config)
    command = [caddy, "run", "--config", str(tmp_path / "Caddyfile"), "--adapter", "caddyfile"]
    with proxy(command, port, tmp_path / "output.log"):
        assert {*ask_each(port)} <= {413, 502, 503}  # 503 where Caddy itself has seen that nobody is there
    logged = (tmp_path / "output.log").read_text()
    assert logged.count('"http.log.error"') >= 4
    assert any(secret in logged for secret in LEAKED) == leaks
