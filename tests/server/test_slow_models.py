"""Clients that give up on a slow model and ask again: with the real client of DeepL."""

from dataclasses import replace
from typing import Any

import deepl
import pytest
from deepl import http_client
from serving import CONFIG, Slow, running

from dragoman.decoding.pool import Pool
from dragoman.server.models import Models

TEXT = "The dog sees 4 red cats."


@pytest.fixture(scope="module")
def expected(models: Models) -> str:
    """TEXT, translated without a server."""
    return next(iter(models.by_pair.values())).translator.translate(TEXT).text


def ask_slow_model(models: Models, monkeypatch: pytest.MonkeyPatch, second: float, grace: float) -> tuple[str, int]:
    """What the client gets of a model that needs 12 seconds, and how often the text was searched for.

    second: how long a second is. The client waits for 10 of them, and then asks again at once.
    """
    monkeypatch.setattr(http_client, "min_connection_timeout", 10 * second)
    monkeypatch.setattr(http_client._BackoffTimer, "BACKOFF_INITIAL", second)
    one = next(iter(models.by_pair.values()))
    slow = Slow(one.translator.engine, 12 * second)
    with Pool(slow, grace=grace) as pool:  # type: ignore[arg-type]
        own = Models([replace(one, pool=pool)])
        with running(own, replace(CONFIG, max_wait=4 * second)) as server:
            assert server.translate("7 dogs.", target="ko").status == 200  # from here on it knows how slow it is
            before = len(slow.searched)
            client = deepl.DeepLClient("any", server_url=server.url)
            try:
                text = client.translate_text(TEXT, source_lang="EN", target_lang="KO").text
            except deepl.ConnectionException:
                text = ""
            return text, len(slow.searched) - before


@pytest.mark.slow
def test_slow_model_answers_the_second_attempt_in_real_time(models: Models, expected: str, monkeypatch: Any):
    # Again where the machine was so busy that the client took more than half a second to ask again.
    assert any(ask_slow_model(models, monkeypatch, 1.0, 0.5) == (expected, 1) for _ in range(3))
