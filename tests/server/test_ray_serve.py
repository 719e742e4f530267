"""The server on Ray Serve: two replicas on this machine. They need the extra ray-serve."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import deepl
import pytest
import test_deepl
import test_libretranslate
from processes import free_port
from serving import Running, until
from test_processes import TEXT, UPLOAD, Load

from dragoman.config.serve import ServeConfig
from dragoman.errors import UsageError
from dragoman.server.models import Models

ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'dragoman[ray-serve]'")
serve = pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'dragoman[ray-serve]'")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[int]:
    """Ray on this machine; its port for HTTP."""
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    port = free_port()
    serve.start(http_options={"port": port})
    yield port
    serve.shutdown()
    ray.shutdown()


@pytest.fixture
def config(trained: Path, tmp_path: Path) -> ServeConfig:
    return ServeConfig(model=(f"en-ko={trained}",), state=str(tmp_path / "state"), open=True)


@pytest.fixture
def deployed(cluster: int, config: ServeConfig) -> Callable[..., Running]:
    """Deploy two replicas with other settings."""
    from dragoman.server.ray import deploy

    def run(**settings: Any) -> Running:
        own = replace(config, **settings)
        serve.run(deploy(own, (2, 2)))
        return Running(cluster, cast(Any, SimpleNamespace(config=own)), cast(Any, None))

    return run


@pytest.fixture(scope="module")
def alone(models: Models) -> str:
    """How the model translates TEXT without a server."""
    return next(iter(models.by_pair.values())).translator.translate(TEXT).text


def replicas() -> list[str]:
    """The names of the replicas that run."""
    return [one["name"] for one in ray.util.list_named_actors(all_namespaces=True) if "SERVE_REPLICA" in one["name"]]


def running_replicas() -> int:
    status = serve.status().applications["default"].deployments["dragoman"]
    return status.replica_states.get("RUNNING", 0) if status.status == "HEALTHY" else 0


def test_arguments_are_those_of_serve_run(config: ServeConfig, tmp_path: Path):
    from dragoman.server.ray import application, deploy

    file = tmp_path / "serve.toml"
    file.write_text(f'model = ["{config.model[0]}"]\nopen = true\n')
    assert isinstance(application({"config": str(file), "min_replicas": "2"}), serve.Application)

    with pytest.raises(UsageError, match="--open"):
        deploy(replace(config, open=False))
    for arguments in ({}, {"config": "serve.json"}, {"config": "a.toml", "replicas": "2"}):
        with pytest.raises(UsageError, match=r"config=FILE\.toml"):
            application(arguments)


def test_clients_of_libretranslate_are_answered(deployed: Callable[..., Running], alone: str):
    server = deployed()
    test_libretranslate.test_clients_of_others_are_answered(server, alone)
    test_libretranslate.test_body_forms_get_the_same_answer(server, alone)
    test_libretranslate.test_list_is_answered_by_a_list_of_the_same_length(server, alone)
    test_libretranslate.test_markup_stays_and_text_in_it_is_escaped(server, alone)
    test_libretranslate.test_language_of_each_text_is_detected(server, alone)


def test_clients_of_deepl_are_answered(deployed: Callable[..., Running], alone: str, tmp_path: Path):
    deepl.http_client.max_network_retries = 0
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": key.name, "sha256": key.sha256} for key in test_deepl.KEYS]}))
    server = deployed(open=False, api_keys=str(keys))
    client = deepl.DeepLClient("first", server_url=server.url)
    test_deepl.test_client_translates_texts(client, alone)
    test_deepl.test_markup_of_deepl_texts_stays(client, server, alone)
    test_deepl.test_forms_of_the_other_client_are_read(server, alone)
    test_deepl.test_deepl_key_is_needed(server)
    test_deepl.test_glossaries_of_both_generations_are_kept_and_used(client, server, alone)
    test_deepl.test_documents_are_uploaded_asked_for_and_fetched_once(client, server, alone)
    test_deepl.test_documents_of_others_are_not_shown(client, server, tmp_path)


def test_new_version_under_load_fails_nothing(deployed: Callable[..., Running]):
    server = deployed()
    assert server.translate(3 * ["7"]).status == 200
    before = replicas()
    with Load(server) as load:
        deployed(texts=2)
        load.more(20)
    assert not {*replicas()} & {*before}
    assert server.translate(3 * ["7"]).status == 400
    assert {answer.status for answer in load.answers} == {200}
    assert load.failed == []


def test_killed_replica_loses_its_answers_and_no_document(deployed: Callable[..., Running]):
    server = deployed()
    documents, kind = [], {"Content_Type": "multipart/form-data; boundary=x"}
    for _ in range(11):  # odd, so that two replicas have translated different numbers of them
        documents.append(server.ask("POST", "/v2/document", UPLOAD, **kind).json)
    uploads = set()  # of each replica
    until(lambda: uploads.add(server.metric('dragoman_answers_total{route="/v2/document",status="2xx"}')) or
          sum(uploads) == len(documents))  # fmt: skip
    assert len(uploads) == 2
    assert 0 not in uploads
    with Load(server, pause=0.2) as load:
        ray.kill(ray.get_actor(replicas()[0], namespace="serve"))
        began = time.monotonic()
        until(lambda: running_replicas() < 2)
        until(lambda: running_replicas() == 2, 120)
        seconds = time.monotonic() - began
        load.more(20)
    failed = len(load.failed) + sum(answer.status != 200 for answer in load.answers)
    print(f"{failed} of {len(load.answers)} failed, ready again after {seconds:.1f} s")
    assert failed <= len(load.threads)
    assert seconds < 30
    for document in documents:
        body = {"document_key": document["document_key"]}
        path = f"/v2/document/{document['document_id']}"
        assert server.ask("POST", path, body).json["status"] == "done"
        assert server.ask("POST", f"{path}/result", body).status == 200
