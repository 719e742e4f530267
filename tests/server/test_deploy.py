"""The files in deploy/ are what they say they are, and agree with the server."""

import configparser
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_flags import FLAGS

from dragoman.config import update
from dragoman.config.serve import ServeConfig
from dragoman.server.listening import NOTICE
from dragoman.server.metrics import Metrics
from dragoman.server.reading import MAX_DOCUMENT
from dragoman.server.run import KEEP_ALIVE, LAST_STEP
from dragoman.server.table import ROUTES

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PATHS = {route.path for route in ROUTES}
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
