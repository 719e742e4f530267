"""Reach the Hugging Face Hub, where a model is named 'hub:USER/NAME' or 'hub:USER/NAME@REVISION'.

Files go through the library of the Hub, into its cache and with its token, which it finds by itself: HF_TOKEN, or what
`hf auth login` has saved. Nothing here reads a token. What is downloaded is a stranger's: whoever reads it checks it.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.errors import DragomanError, UsageError
from dragoman.storage.writing import MANIFEST

if TYPE_CHECKING:
    from huggingface_hub.errors import HfHubHTTPError

PREFIX = "hub:"
NAME = re.compile(rf"{PREFIX}([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)
OF_THE_HUB = {".gitattributes", "README.md"}  # files that it makes itself


def is_on_hub(name: str | Path) -> bool:
    """Return whether a name of a model names one on the Hub."""
    return str(name).startswith(PREFIX)


@dataclass(frozen=True)
class Repository:
    """A repository of a model on the Hub, 'USER/NAME', at a branch, tag or commit; None for its main branch."""

    id: str
    revision: str | None = None

    @classmethod
    def parse(cls, name: str | Path) -> "Repository":
        """Return the repository of a name. Raise UsageError where it is none, DragomanError without huggingface_hub."""
        if not (match := NAME.fullmatch(str(name))):
            raise UsageError(
                f"{name}: a model on the Hugging Face Hub is {PREFIX}USER/NAME or {PREFIX}USER/NAME@REVISION"
            )
        if find_spec("huggingface_hub") is None:
            raise DragomanError(f"{name}: the Hugging Face Hub needs huggingface_hub: pip install 'dragoman[hub]'")
        return cls(*match.groups())

    def __str__(self) -> str:
        return f"{PREFIX}{self.id}" + (f"@{self.revision}" if self.revision else "")

    def download(self, name: str) -> Path | None:
        """Return a file of the repository, in the folder of its commit in the cache; None where there is no such file.

        A commit is downloaded once; of a branch or tag, the last one that was downloaded does where the Hub cannot be
        reached. Raise DragomanError where there is no such repository or revision, or one may not read it.
        """
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import RemoteEntryNotFoundError

        try:
            with self.explain_errors(name):
                return Path(hf_hub_download(self.id, name, revision=self.revision))
        except RemoteEntryNotFoundError:
            return None

    def list_files(self) -> tuple["Repository", list[str]]:
        """Return the repository at the commit that its revision means now, and the names of the files there.

        Raise DragomanError as `download` does, and where the Hub cannot be reached.
        """
        from huggingface_hub import HfApi

        with self.explain_errors():
            info = HfApi().model_info(self.id, revision=self.revision)
        return replace(self, revision=info.sha), [file.rfilename for file in info.siblings or []]

    def upload(self, files: Mapping[str, Path | bytes], message: str, *, private: bool) -> str:
        """Write files into the main branch of the repository in one commit, and return the address of the commit.

        The repository is made if there is none, for its owner alone if `private`. Raise DragomanError where there is no
        token or it must not write there, where the repository holds something else than a model folder, and where it
        should be private but is there already and public.
        """
        from huggingface_hub import CommitOperationAdd, HfApi, get_token

        if get_token() is None:
            raise DragomanError(
                f"{self}: uploading needs a token with write access: set HF_TOKEN, or save one with `hf auth login`"
            )
        hub = HfApi()
        with self.explain_errors():
            hub.create_repo(self.id, private=private or None, exist_ok=True)
            info = hub.model_info(self.id)
        others = {file.rfilename for file in info.siblings or []} - OF_THE_HUB
        if others and MANIFEST not in others:
            raise DragomanError(f"{self}: it holds something else, {min(others)}: choose another name")
        if private and not info.private:
            raise DragomanError(f"{self}: it is there already, and public: make it private in its settings first")
        additions = [CommitOperationAdd(name, content) for name, content in files.items()]
        with self.explain_errors():
            return hub.create_commit(self.id, additions, commit_message=message).commit_url

    @contextmanager
    def explain_errors(self, file: str = "") -> Iterator[None]:
        """Let the errors of the library in the block be a DragomanError of one sentence.

        file: what is downloaded, for messages. Errors of the connection are not quoted: they may quote the token.
        RemoteEntryNotFoundError goes through.
        """
        from httpx2 import RequestError
        from huggingface_hub import constants, errors

        unreachable = f"the Hub cannot be reached{file and f', and no earlier download of {file} is in the cache'}"
        try:
            yield
            return
        except errors.RemoteEntryNotFoundError:
            raise
        except errors.HFValidationError:
            reason = "not a name that the Hub allows"
        except errors.GatedRepoError:
            reason = f"its owners want to be asked first, on {constants.ENDPOINT}/{self.id}; then set HF_TOKEN"
        except errors.RepositoryNotFoundError:
            reason = "no such model on the Hub, or a private one: check the name; for a private one, set HF_TOKEN"
        except errors.RevisionNotFoundError:
            reason = "no such revision: no branch, tag or commit has this name"
        except errors.LocalEntryNotFoundError as error:
            refused = error.__cause__
            reason = answer(refused) if isinstance(refused, errors.HfHubHTTPError) else unreachable
        except errors.HfHubHTTPError as error:
            reason = answer(error)
        except (errors.OfflineModeIsEnabled, RequestError):
            reason = unreachable
        except UnicodeError:
            token = "HF_TOKEN, or the token that `hf auth login` has saved,"
            reason = f"{token} contains characters that are not allowed in a token"
        except (ValueError, RuntimeError) as error:  # of uploads: metadata that the Hub refuses, a file that fails
            reason = f"the upload failed: {error}"
        except OSError as error:
            if error.errno:  # of the disk
                raise
            reason = f"{file or 'a file'} was not downloaded completely: try again"
        raise DragomanError(f"{self}: {reason}") from None


def answer(error: "HfHubHTTPError") -> str:
    """Return what the Hub answers instead of doing what it was asked for."""
    said = f": {error.server_message}" if error.server_message else ""
    return f"the Hub answers {error.response.status_code}{said}"
