"""Reads a named value from where the policy says it is: an environment variable or a file.

White space around it is trimmed. Messages name the variable or the file, never the value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from proxy.policy.problem import Problem, one_line
from proxy.policy.reading import read_bounded
from proxy.policy.snapshot import PolicySnapshot, ValueSource

LARGEST_SECRET = 64 * 1024


class SecretProblem(Exception):
    """A named value that is missing or malformed; the text says which and why."""


def read_value(source: ValueSource, environ: Mapping[str, str]) -> str:
    """Returns the value of a source. Raises `SecretProblem`."""
    if source.literal is not None:
        return source.literal
    if source.env is not None:
        if source.env not in environ:
            raise SecretProblem(f"the environment variable {source.env} is not set")
        return _checked(environ[source.env], f"the environment variable {source.env}")
    return _from_file(source.file or "")


def secret_problems(snapshot: PolicySnapshot, environ: Mapping[str, str]) -> Iterator[Problem]:
    """A problem, with its place in the policy, for every named value that cannot be used."""
    for path, source in sources(snapshot):
        try:
            read_value(source, environ)
        except SecretProblem as problem:
            file, line, column = source.place.rsplit(":", 2)
            yield Problem(file=file, line=int(line), column=int(column), path=path, message=str(problem))


def sources(snapshot: PolicySnapshot) -> Iterator[tuple[str, ValueSource]]:
    """Yields (path in the policy, source) of every value of keys, headers and passwords."""
    for provider in snapshot.providers:
        for number, key in enumerate(provider.keys):
            yield f"providers.{provider.name}.keys.{number}.{_kind(key.source)}", key.source
        for header, source in provider.headers:
            yield f"providers.{provider.name}.headers.{header}", source
    for number, route in enumerate(snapshot.routes or ()):
        if route.cache_redis is not None and (password := route.cache_redis.password) is not None:
            yield f"routes.{number}.cache.store.password.{_kind(password)}", password


def _kind(source: ValueSource) -> str:
    return "file" if source.env is None else "env"


def _from_file(name: str) -> str:
    shown = f"the file {one_line(name)}"
    try:
        content = read_bounded(name, LARGEST_SECRET)
        text = content.decode("utf-8")
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise SecretProblem(f"{shown} cannot be read: {reason}") from error
    except UnicodeDecodeError:
        # The cause would quote the bytes.
        raise SecretProblem(f"{shown} is not text") from None
    if len(content) > LARGEST_SECRET:
        raise SecretProblem(f"{shown} is larger than {LARGEST_SECRET >> 10} KiB")
    return _checked(text, shown)


def _checked(text: str, what: str) -> str:
    value = text.strip()
    if not value:
        raise SecretProblem(f"{what} is empty")
    if not value.isprintable():
        raise SecretProblem(f"{what} has a control character inside")
    if not value.isascii():
        raise SecretProblem(f"{what} has a character that is not ASCII")
    return value
