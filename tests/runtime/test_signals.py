"""Signals inside a block: handled there, and as before after it, whoever handled them."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.runtime.signals import handle_signals

HOST = """
#include <signal.h>
static void handle(int number) {}
__attribute__((constructor)) static void install(void) { signal(SIGTERM, handle); }
"""
SCRIPT = """
from signal import SIG_IGN, SIGINT, SIGTERM, getsignal, default_int_handler
from dragoman.runtime.signals import handle_signals
with handle_signals((SIGTERM, SIGINT), SIG_IGN):
    print(getsignal(SIGTERM), getsignal(SIGINT) == SIG_IGN)
print(getsignal(SIGTERM), getsignal(SIGINT) == default_int_handler)
"""


def test_signals_are_handled_in_the_block_and_as_before_after_it():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    with handle_signals((signal.SIGTERM, signal.SIGHUP), signal.SIG_IGN):
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == [signal.SIG_IGN] * 2
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == before


@pytest.mark.skipif(not (compiler := shutil.which("cc")), reason="there is no C compiler: install gcc")
def test_signals_that_a_program_in_c_handles_stay_with_it(tmp_path: Path):
    """Python cannot give them back. The control is the other signal."""
    (tmp_path / "host.c").write_text(HOST)
    library = tmp_path / "host.so"
    subprocess.run([str(compiler), "-shared", "-fPIC", "-o", library, tmp_path / "host.c"], check=True)
    preload = {"LD_PRELOAD": str(library), "PYTHONPATH": ":".join(filter(None, sys.path))}
    ran = subprocess.run([sys.executable, "-c", SCRIPT], env=preload, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["None True", "None True"]
