from __future__ import annotations

from proxy.policy.difference.change import Findings, Sign, Value


def test_nothing_found_is_no_section() -> None:
    assert Findings().changes("provider a") is None


def test_anything_found_is_one() -> None:
    for name in ("effect", "warn"):
        findings = Findings()
        getattr(findings, name)("it begins anew")
        section = findings.changes("provider a")
        assert section is not None
        assert (section.sign, section.subject, section.values) == (Sign.CHANGED, "provider a", ())


def test_a_sentence_is_said_once_and_order_stays() -> None:
    findings = Findings()
    for sentence in ("b", "a", "b"):
        findings.effect(sentence)
        findings.warn(sentence)
    findings.value("x", "1", "2", note="new requests")
    section = findings.section(Sign.ADDED, "key a/k")
    assert (section.effects, section.warnings) == (("b", "a"), ("b", "a"))
    assert section.values == (Value(name="x", old="1", new="2", note="new requests"),)
