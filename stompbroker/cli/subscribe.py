"""`stompbroker subscribe`: receive messages and show them."""

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from stompbroker.cli.options import HeaderOption, JsonOption, read_headers, require_utf8
from stompbroker.cli.outcome import run
from stompbroker.cli.target import (
    CaOption,
    CertificateOption,
    HostOption,
    KeyOption,
    PortOption,
    UrlOption,
    find_target,
)

#: Always the same, so that the same command resumes its subscription.
DEFAULT_CLIENT_ID = "stompbroker-cli"

#: Headers that the command sets itself, and what to use instead.
_RESERVED = {
    "destination": "the argument DEST",
    "ack": "--ack",
    "id": "the command; it has one subscription",
    "receipt": "the command",
}
_RESERVED_WITH_DURABLE = {"activemq.subscriptionName": "--durable"}
_RESERVED_WITH_GROUP = {"group": "--group", "auto-delete": "--auto-delete", "exclusive": "--exclusive"}
_RESERVED_WITH_BROWSE = {"browser": "--browse"}
_Ack = Literal["auto", "client", "client-individual"]


def subscribe(
    destination: Annotated[
        str,
        typer.Argument(
            metavar="DEST", help="What to receive: /topic/greetings, a pattern such as prices.*, or /queue/jobs."
        ),
    ],
    ack: Annotated[
        _Ack | None,
        typer.Option(
            help="auto: the broker forgets what it has sent; otherwise a message is acknowledged once it is written.",
            show_default="auto; client-individual with --durable, --group or a queue",
        ),
    ] = None,
    durable: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Create or resume the durable subscription of this name: the broker keeps messages for it.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Join the group of this name: each message goes to one member. The broker keeps messages for it.",
        ),
    ] = None,
    auto_delete: Annotated[
        bool, typer.Option("--auto-delete", help="With --group: it ends with its last member, and nothing is kept.")
    ] = False,
    exclusive: Annotated[
        bool,
        typer.Option(
            "--exclusive", help="With --group or a queue: one member gets everything, and the next takes over in order."
        ),
    ] = False,
    browse: Annotated[
        bool, typer.Option("--browse", help="Show what is in a queue now, take nothing, and end.")
    ] = False,
    client_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Client id; with --durable, a part of the subscription's identity.",
            show_default=f"{DEFAULT_CLIENT_ID} with --durable",
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after this many.", show_default="go on")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="SECONDS", help="Stop when no message comes for this long.", show_default="wait"),
    ] = None,
    reconnect: Annotated[
        bool,
        typer.Option("--reconnect", help="Wait for the broker, and connect again whenever the connection is lost."),
    ] = False,
    # Accepted because people type it; it is the default.
    follow: Annotated[
        bool, typer.Option("--follow", "-f", show_default=False, help="Go on until Ctrl-C; the default.")
    ] = True,
    header: HeaderOption = None,
    body_only: Annotated[bool, typer.Option("--body-only", help="Write bodies alone, each with a line end.")] = False,
    host: HostOption = None,
    port: PortOption = None,
    url: UrlOption = None,
    ca: CaOption = None,
    certificate: CertificateOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Receive messages and show them, until Ctrl-C.

    With --json each line is an object with headers, body and encoding ("text", or "base64" if it is not UTF-8).

    A durable subscription belongs to a client id and a name: the same two resume it.
    It is kept when this command ends; "stompbroker subscriptions rm ID/NAME" deletes it.

    Of those who join a group, or subscribe to a queue, each gets a part of the messages: start the command several
    times. Both are kept when it ends, and so is what it has not acknowledged.

    With a NAME in the URL, the password comes from STOMPBROKER_PASSWORD, or is asked for on the terminal. A token comes
    from STOMPBROKER_TOKEN.

    With --reconnect, messages of a topic that come while there is no connection are missed, unless the broker keeps
    them: with --durable or --group, or in a queue. A message that was not acknowledged comes again.

    The exit code is 1 if --timeout ends it before --count is reached.

    Examples:

    $ stompbroker subscribe /topic/greetings
    $ stompbroker subscribe "prices.*" --ack client -H prefetch-count:10
    $ stompbroker subscribe /topic/orders --json | jq .body
    $ stompbroker subscribe /topic/orders --durable invoices --client-id billing
    $ stompbroker subscribe /topic/orders --group billing
    $ stompbroker subscribe /queue/jobs
    $ stompbroker subscribe /queue/jobs --browse
    $ stompbroker subscribe /topic/orders --count 1 --timeout 5 --body-only
    $ stompbroker subscribe --url stomp+tls://alice@broker.example --ca certificate.pem /topic/orders
    """
    if as_json and body_only:
        raise typer.BadParameter("cannot be combined with --json", param_hint="--body-only")
    require_utf8(destination, "DEST")
    if durable is not None:
        client_id = DEFAULT_CLIENT_ID if client_id is None else client_id
    _require_name(durable, "--durable")
    _require_name(client_id, "--client-id")
    wish = _Wish(
        destination=destination,
        ack=ack,
        durable=durable,
        group=group,
        auto_delete=auto_delete,
        exclusive=exclusive,
        browse=browse,
    )
    wish.check()
    headers = wish.headers(header)
    target = find_target(host, port, url, ca=ca, certificate=certificate, key=key)

    from stompbroker.cli.reception import Reception, choose_format

    reception = Reception(
        destination=destination,
        headers=headers,
        ack=wish.ack_in_use,
        client_id=client_id,
        durable_name=durable,
        group=group,
        is_browser=browse,
        is_kept=wish.is_kept,
        count=count,
        timeout_s=timeout,
        reconnects=reconnect,
        render=choose_format(is_json=as_json, body_only=body_only),
    )
    run(reception.receive, target)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """What is subscribed to, and on which terms."""

    destination: str
    ack: _Ack | None
    durable: str | None
    group: str | None
    auto_delete: bool
    exclusive: bool
    browse: bool

    @property
    def is_queue(self) -> bool:
        return self.destination.startswith("/queue/")

    @property
    def takes_jobs(self) -> bool:
        return self.is_queue and not self.browse

    @property
    def is_kept(self) -> bool:
        """Whether a group or queue keeps what comes later."""
        return self.takes_jobs or (self.group is not None and not self.auto_delete)

    @property
    def ack_in_use(self) -> _Ack:
        """With auto, messages on the network are lost if nobody reads them; what is kept must not lose any."""
        needs_acks = self.durable is not None or self.group is not None or self.takes_jobs
        return self.ack or ("client-individual" if needs_acks else "auto")

    def check(self) -> None:
        """Raise BadParameter if these do not go together."""
        if self.group is not None:
            self._check_group(self.group)
        elif self.auto_delete:
            raise typer.BadParameter("is for groups; add --group NAME", param_hint="--auto-delete")
        elif self.exclusive and not self.is_queue:
            raise typer.BadParameter("is for groups and queues; add --group NAME", param_hint="--exclusive")
        if self.browse:
            self._check_browsing()

    def _check_group(self, group: str) -> None:
        _require_name(group, "--group")
        if self.durable is not None:
            raise typer.BadParameter(
                "names a subscription of its own; leave --durable or --group out", param_hint="--group"
            )
        if self.is_queue:
            raise typer.BadParameter("is for topics; the consumers of a queue share it anyway", param_hint="--group")

    def _check_browsing(self) -> None:
        if not self.is_queue:
            raise typer.BadParameter("is for queues; name one as /queue/NAME", param_hint="--browse")
        if self.ack not in (None, "auto"):
            raise typer.BadParameter(
                "takes nothing, so nothing is acknowledged; leave --ack out", param_hint="--browse"
            )
        for option, value in {"--durable": self.durable, "--exclusive": self.exclusive}.items():
            if value:
                raise typer.BadParameter(f"takes nothing; leave {option} out", param_hint="--browse")

    def headers(self, given: list[str] | None) -> list[tuple[str, str]]:
        """Those given, and our own."""
        reserved = _RESERVED | (_RESERVED_WITH_DURABLE if self.durable is not None else {})
        reserved |= _RESERVED_WITH_GROUP if self.group is not None or self.exclusive else {}
        reserved |= _RESERVED_WITH_BROWSE if self.browse else {}
        headers = read_headers(given, reserved=reserved)
        headers += [("exclusive", "true")] if self.exclusive else []
        headers += [("browser", "true")] if self.browse else []
        return headers


def _require_name(text: str | None, parameter: str) -> None:
    """Refuse control characters, because CONNECT knows no escapes, and an empty name."""
    if text is not None:
        require_utf8(text, parameter)
        if not text or not text.isprintable():
            raise typer.BadParameter("must be a text without control characters, and not empty", param_hint=parameter)
