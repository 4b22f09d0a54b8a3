"""`sponson inject FILE|-`: manifests with the sidecar in their workloads, to stdout. No network, no cluster."""

from __future__ import annotations

import re
import sys
from typing import NoReturn

import click

from proxy.cli.words import counted
from proxy.kubernetes.fragment import Mode, SidecarSettings
from proxy.kubernetes.injection import inject
from proxy.kubernetes.problem import ManifestError
from proxy.kubernetes.sidecar import NAME_OF_OBJECT

DEFAULTS = SidecarSettings()
QUANTITY = re.compile(r"\d+(\.\d+)?(m|[kMGT]i?|)")


def _named(_: click.Context, __: click.Parameter, value: str) -> str:
    if not NAME_OF_OBJECT.fullmatch(value):
        raise click.BadParameter("not a name of Kubernetes: a-z, 0-9, . and -")
    return value


def _quantity(_: click.Context, __: click.Parameter, value: str) -> str:
    if not QUANTITY.fullmatch(value):
        raise click.BadParameter("not a quantity, such as 50m or 96Mi")
    return value


def _image(_: click.Context, __: click.Parameter, value: str) -> str:
    if not value or re.search(r"\s", value):
        raise click.BadParameter("not an image's name")
    return value


@click.command(name="inject")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--image", default=DEFAULTS.image, show_default=True, callback=_image, help="Image of the sidecar.")
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in Mode]),
    default=DEFAULTS.mode.value,
    show_default=True,
    help="Sidecar or plain container.",
)
@click.option("--policy-configmap", default=DEFAULTS.policy_configmap, show_default=True, callback=_named)
@click.option("--keys-secret", default=DEFAULTS.keys_secret, show_default=True, callback=_named)
@click.option("--cpu-request", default=DEFAULTS.cpu_request, show_default=True, callback=_quantity)
@click.option("--memory-request", default=DEFAULTS.memory_request, show_default=True, callback=_quantity)
@click.option("--memory-limit", default=DEFAULTS.memory_limit, show_default=True, callback=_quantity)
@click.option(
    "--set-base-url", is_flag=True, help="Give containers OPENAI_BASE_URL and ANTHROPIC_BASE_URL where they have none."
)
def command(file: str, *, mode: str, **options: str | bool) -> None:
    """Add the sidecar to the workloads of the manifest FILE ("-": stdin), and write all of it to stdout.

    Documents that need no change come out byte for byte; so does what has the sidecar already. Of changed ones the
    comments inside are lost. Annotations of a pod template choose: sponson.dev/inject: "false" leaves it alone,
    sponson.dev/policy names its ConfigMap, sponson.dev/mode is native or classic. Exits 1 and writes nothing to
    stdout when anything is wrong, and says all of it on stderr.
    """
    settings = SidecarSettings(mode=Mode(mode), **options)  # type: ignore[arg-type]
    try:
        done = inject(_text(file), settings)
    except ManifestError as error:
        _refuse(file, error.problems)
    for line in done.warnings:
        click.echo(f"{file}: {line} (warning)", err=True)
    sys.stdout.buffer.write(done.text.encode())
    sys.stdout.flush()


def _text(file: str) -> str:
    try:
        with click.open_file(file, "rb") as stream:
            content: bytes = stream.read()
        return content.decode()
    except UnicodeDecodeError as error:
        raise ManifestError((f"is not UTF-8, at byte {error.start}: save it so",)) from None
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error.strerror}") from None


def _refuse(name: str, problems: tuple[str, ...]) -> NoReturn:
    for line in problems:
        click.echo(f"{name}: {line}", err=True)
    click.echo(counted(len(problems), "problem"), err=True)
    raise SystemExit(1)
