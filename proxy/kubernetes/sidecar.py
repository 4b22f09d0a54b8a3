"""A pod template with the sidecar in it: added, or brought up to date where it is in there already."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from proxy.kubernetes.clashes import clashes, name_clashes, others, warnings
from proxy.kubernetes.fragment import BASE_URLS, LABEL, NAME, Mode, SidecarSettings, container, volumes
from proxy.kubernetes.problem import Unfit
from proxy.kubernetes.tree import Document, Scalar, tag_of
from proxy.kubernetes.workloads import listed, mapped, template_of

INJECT = "sponson.dev/inject"
POLICY = "sponson.dev/policy"
MODE = "sponson.dev/mode"
"""Annotations of a pod template; they win over the command's options."""

NAME_OF_OBJECT = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def add_sidecar(workload: Document, settings: SidecarSettings) -> list[str]:
    """Puts the sidecar into the workload's pod template. Returns warnings. Raises `Unfit`.

    Nothing else changes, except that `set_base_url` gives variables to containers that do not have them.
    """
    template = template_of(workload)
    notes = mapped(mapped(template, "metadata"), "annotations")
    if not _is_wanted(notes):
        return []
    settings = _chosen(notes, settings)
    spec = template["spec"]
    ours = mapped(mapped(template, "metadata"), "labels").get(LABEL) == "true"
    found = [*(() if ours else name_clashes(spec)), *clashes(str(workload["kind"]), spec, mode=settings.mode)]
    if found:
        raise Unfit(*found)
    said = list(warnings(spec, mode=settings.mode))
    _label(template)
    _place(spec, settings)
    _mount(spec, settings)
    if settings.set_base_url:
        said += _set_base_urls(spec, mode=settings.mode)
    return said


def _is_wanted(notes: Document) -> bool:
    value = notes.get(INJECT, "true")
    if value not in ("true", "false"):
        raise Unfit(f'has the annotation {INJECT}: {value}: write "true" or "false"')
    return bool(value == "true")


def _chosen(notes: Document, settings: SidecarSettings) -> SidecarSettings:
    mode = notes.get(MODE, settings.mode)
    if mode not in list(Mode):
        raise Unfit(f"has the annotation {MODE}: {mode}: write {' or '.join(Mode)}")
    policy = notes.get(POLICY, settings.policy_configmap)
    if not isinstance(policy, str) or not NAME_OF_OBJECT.fullmatch(policy):
        raise Unfit(f"has the annotation {POLICY}: {policy}: write the name of a ConfigMap")
    return replace(settings, mode=Mode(mode), policy_configmap=str(policy))


def _label(template: Document) -> None:
    metadata = mapped(template, "metadata")
    labels = mapped(metadata, "labels")
    if labels.get(LABEL) == "true" and tag_of(labels[LABEL]) == tag_of("true"):
        return
    labels[Scalar(LABEL)] = "true"
    metadata["labels"] = labels
    if "metadata" not in template:
        # Where people look for it: before the spec.
        rest = dict(template)
        template.clear()
        template.update({"metadata": metadata, **rest})
    template["metadata"] = metadata


def _place(spec: Document, settings: SidecarSettings) -> None:
    new = container(settings)
    native = [each for each in listed(spec, "initContainers") if each.get("name") != NAME]
    plain = listed(spec, "containers")
    if settings.mode is Mode.NATIVE:
        # Before all others: they start when it is ready, and may call through it.
        native.insert(0, new)
        plain = [each for each in plain if each.get("name") != NAME]
    else:
        plain = _updated(plain, [new])
    spec["containers"] = plain
    if native:
        spec["initContainers"] = native
    elif "initContainers" in spec and listed(spec, "initContainers"):
        del spec["initContainers"]


def _mount(spec: Document, settings: SidecarSettings) -> None:
    spec["volumes"] = _updated(listed(spec, "volumes"), volumes(settings))


def _updated(found: list[Document], new: list[Document]) -> list[Document]:
    """Returns `found` with the new ones in the places of those with their names, or behind all."""
    named = {each["name"]: each for each in new}
    kept = [named.pop(each["name"]) if each.get("name") in named else each for each in found]
    return [*kept, *named.values()]


def _set_base_urls(spec: Document, *, mode: Mode) -> Iterator[str]:
    # In classic mode nothing answers yet when init containers run.
    early = [] if mode is Mode.NATIVE else listed(spec, "initContainers")
    for each in others(spec):
        if any(each is one for one in early):
            continue
        env = listed(each, "env")
        has = {variable.get("name") for variable in env}
        missing = [{"name": name, "value": value} for name, value in BASE_URLS if name not in has]
        if missing and listed(each, "envFrom"):
            names = " and ".join(variable["name"] for variable in missing)
            yield f'container "{each.get("name")}" has envFrom: {names} set here would win over what it brings'
        if missing:
            each["env"] = [*env, *missing]
