"""Policies that are nearly right: a snapshot that can be put to work, or problems with their places, and no secret.

Between them there is nothing: no other exception, whatever the text is.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.policy.difference.compare import differences
from proxy.policy.load import load_policy
from proxy.policy.problem import PolicyError, Problem
from proxy.policy.secret_sources import sources
from proxy.policy.snapshot import PolicySnapshot
from proxy.policy.source import PolicyBytes
from tests.fuzz import drawn
from tests.fuzz.corpus import POLICIES
from tests.fuzz.mutations import mutated
from tests.runtime.shop import Shop

SECRET = "sk-Slipped0ne"
GOOD = b"version: 1\nproviders:\n  a: {base_url: 'https://x.example/v1', keys: [{id: k, env: K}]}\n"
SEEDS = (
    b"",
    b"\xef\xbb\xbf",
    b"---\n...\n---\n",
    b"version: 1\nproviders: &p {a: {base_url: *p}}\n",
    b"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
    b"d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n",
    b"a: " + b"[" * 500,
    b"a: " + b"{x: " * 500,
    b"- " * 400 + b"x\n",
    b"? " * 300 + b"x\n",
    b"version: " + b"9" * 5000 + b"\n",
    b"version: 1e" + b"9" * 300 + b"\n",
    b"version: 1\nproviders: {a: {base_url: '" + b"http://x/" + b"y" * 100_000 + b"'}}\n",
    b"version: 1\nproviders:\n  a:\n    base_url: http://[::1\n    base_url: http://x:99999\n",
    b"version: 1\nproviders:\n  a: {base_url: 'https://{y.example/v1'}\n",
    b"version: 1\nproviders:\n  a: {base_url: 'https://y..example/v1'}\n",
    b"version: 1\nproviders:\n  a: {base_url: 'https://[fe80::1%|]/v1'}\n",
    b"version: 1\nproviders: {<<: [{a: {}}, 7, *x]}\n",
    b'version: 1\nproviders: {"\\ud800": {}}\n',
    b"version: 1\nproviders: {a: {base_url: 'http://\xe2\x80\xae.example'}}\n",
    b"version: 1\n? [complex]\n: x\n? {a: b}\n: y\n",
    b"version: 1\nproviders: !!python/object/apply:os.system ['true']\n",
    b"%YAML 9.9\n%TAG ! tag:x,2000:\n---\nversion: 1\n",
    b"version: 1\xc2\x85providers: {}\xe2\x80\xa8x: 1\n",
    b"version: 1\nproviders: {a: {base_url: 'http://x', keys: [{id: k, env: K, weight: .inf}]}}\n",
    b"version: 1\nproviders: {a: {base_url: 'http://x', headers: {x: {env: A, file: B}}, query: {x: null}}}\n",
    b"version: 1\nproviders: {a: {base_url: 'http://x'}}\nroutes: [{name: r, tiers: [{provider: a, set: {x: .nan}}]}]",
    b"version: 1\nproviders: {a: {base_url: 'http://x'}}\nfleet: {size: {static: 1e15}}\nlimits: {concurrency: 0}\n",
)
TOKENS = tuple(
    token.encode()
    for token in (
        *(
            "{",
            "}",
            "[",
            "]",
            ": ",
            "- ",
            "\n",
            "\n  ",
            "\n    ",
            "\t",
            "# ",
            "? ",
            "&x ",
            "*x",
            "<<: ",
            "!!str ",
            "!x ",
        ),
        *("'", '"', "|\n", ">\n", "---\n", "...\n", "null", "true", "off", "on", "010", "1:30", "1e3", ".nan", ".inf"),
        *(
            "-1",
            "0",
            "0.5",
            "5s",
            "0s",
            "9999h",
            "64KiB",
            "1MiB",
            "P1",
            "v1",
            "alpha",
            "openai",
            "http://x",
            "*",
            "[ab",
        ),
        *("providers:", "keys:", "env:", "file:", "limits:", "concurrency:", "rpm:", "tiers:", "provider:", "match:"),
        *("\x00", "\x85", "\u2028", "\u202e", "\ufeff", "\ud83d".encode("utf-8", "surrogatepass").decode("latin-1")),
        *("x" * 300, "9" * 40, "é", "%"),
    )
)
TEXTS = mutated((*POLICIES, *SEEDS, GOOD), TOKENS)


NUMBER = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?![\w.-])")
FILE = re.compile(r"file: [^,}\s]+")
NUMBERS = st.sampled_from(["0", "1", "2", "7", "0.5", "1.0", "1e3", "100", "1000000", "1e12"])


@st.composite
def altered(draw: st.DrawFn) -> bytes:
    """Draws a shipped policy with lines missing, repeated elsewhere, or with other numbers; many are right still."""
    lines = FILE.sub("env: FILED", draw(st.sampled_from(POLICIES)).decode()).splitlines()
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        how = draw(st.integers(0, 9))
        if how == 0:
            lines.insert(draw(st.integers(0, len(lines))), lines[at])
        elif how <= 2:
            del lines[at]
        else:
            lines[at] = NUMBER.sub(draw(NUMBERS), lines[at], count=1)
    return "\n".join(lines).encode()


def outcome(text: bytes) -> PolicySnapshot | tuple[Problem, ...]:
    """Returns the snapshot, or the problems; every problem stands in the text and on one line."""
    lines = re.split("\r\n|[\r\n\x85\u2028\u2029]", text.decode("utf-8", "replace"))
    try:
        return load_policy(PolicyBytes(files=(("p.yaml", text),)))
    except PolicyError as error:
        problems = error.problems
    assert problems
    for one in problems:
        assert one.file == "p.yaml"
        assert 1 <= one.line <= len(lines)
        assert one.column >= 1
        assert one.message
        assert str(one).isprintable()
        assert len(str(one)) < 20_000
    return problems


def works(snapshot: PolicySnapshot) -> None:
    """Puts a policy to work over cores of its own, with a value for every secret, and then once more."""
    shop = Shop({source.env: "s" for _, source in sources(snapshot) if source.env is not None})
    for _ in range(2):
        shop.assemble(snapshot).go_live(shop.clock.now())


def usable(snapshot: PolicySnapshot) -> bool:
    """Whether its secrets can be given here: a file that it names would have to exist."""
    return all(source.file is None for _, source in sources(snapshot))


async def tried(text: bytes) -> None:
    found = outcome(text)
    if isinstance(found, PolicySnapshot):
        if usable(found):
            works(found)
        before = outcome(GOOD)
        assert isinstance(before, PolicySnapshot)
        assert differences(found, found).sections == ()
        assert isinstance(differences(before, found).sections, tuple)


@pytest.mark.parametrize("text", [*SEEDS, *POLICIES, GOOD])
async def test_kept_seeds(text: bytes) -> None:
    await tried(text)


@given(altered())
@drawn(60)
async def test_what_is_accepted_works(text: bytes) -> None:
    await tried(text)


@given(TEXTS)
@drawn(120)
async def test_any_text_is_a_policy_that_works_or_has_problems_with_places(text: bytes) -> None:
    await tried(text)


NAMES = st.sampled_from(["id", "env", "file", "weight", "header", "value", SECRET, f"Bearer {SECRET}", f"{SECRET}\t"])
LEAVES = st.sampled_from(
    [SECRET, f"Bearer {SECRET}", f"{SECRET}\n{SECRET}", f"{SECRET}\x00", f" {SECRET}", None, 7, True]
)
SLIPPED = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
PLACES: dict[str, st.SearchStrategy[Any]] = {
    "keys": SLIPPED,
    "auth": SLIPPED,
    "headers": SLIPPED.filter(lambda value: not isinstance(value, dict)) | st.fixed_dictionaries({"x-a": SLIPPED}),
    "query": SLIPPED.filter(lambda value: not isinstance(value, dict)) | st.fixed_dictionaries({"code": SLIPPED}),
    "base_url": st.sampled_from(
        [
            *(f"https://me:{SECRET}@x.example/v1", f"https://x.example/v1?key={SECRET}", f"//me:{SECRET}@x.example"),
            *(
                f"https://x.example#{SECRET}",
                f"x.example?{SECRET}",
                f"ftp://{SECRET}@x.example",
                f"https://x:9{SECRET}@",
            ),
        ]
    ),
}


@given(st.fixed_dictionaries({}, optional=PLACES), st.booleans())
@drawn(100)
def test_no_problem_and_no_warning_repeats_a_secret(provider: dict[str, Any], as_list: bool) -> None:
    if as_list and "base_url" in provider:
        provider["base_url"] = [provider["base_url"]]
    whole = {"version": 1, "providers": {"a": {"base_url": "https://x.example/v1", **provider}}}
    found = outcome(json.dumps(whole).encode())
    said = found.warnings if isinstance(found, PolicySnapshot) else tuple(map(str, found))
    assert not [line for line in said if SECRET in line]
