"""From a target to a connected client, and from the client's errors to sentences that say what to do on a terminal."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final

from stompbroker.cli.outcome import CommandFailed
from stompbroker.client import (
    Address,
    ClientError,
    InvalidAddress,
    LoginRefused,
    NoConnection,
    Problem,
    Unconfirmed,
)
from stompbroker.client import connect as connect_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from stompbroker.cli.target import Target
    from stompbroker.client import Client

_WHAT_TO_DO: Final = (
    'Start a broker with "stompbroker serve" (in a checkout: make serve), or name another one with --host and --port, '
    "or with --url."
)
_ADVICE: Final = {
    Problem.NO_HOST: _WHAT_TO_DO,
    Problem.NOBODY_LISTENS: _WHAT_TO_DO,
    Problem.NO_ANSWER: _WHAT_TO_DO,
    Problem.WRONG_NAME: "Use the name that it is made for in --url, or have one made for this name: "
    '"stompbroker certificate --host {host}".',
    Problem.UNVERIFIED: "Name the authority that has signed it, or the certificate itself if it is self-signed, with "
    "--ca FILE.",
    Problem.NEEDS_TLS: "use --url stomp+tls://{address}",
}


@asynccontextmanager
async def connected(
    target: Target, *, client_id: str | None = None, reconnects: bool = False, max_unconfirmed: int = 1
) -> AsyncIterator[Client]:
    """Raises CommandFailed, also for what the client raises in the block."""
    with explained(target):
        client = connect_client(
            Address(target.endpoint, target.user),
            passcode=target.password,
            token=target.token,
            tls=target.tls,
            client_id=client_id,
            give_up_after=None if reconnects else 0,
            max_unconfirmed=max_unconfirmed,
        )
        async with client:
            yield client


async def say_goodbye(client: Client, target: Target) -> None:
    """When this comes back, the broker has got everything. Raises CommandFailed."""
    with explained(target):
        if not await client.aclose():
            raise CommandFailed(f"The broker at {target.endpoint.address} did not confirm the end of the conversation.")


@contextmanager
def explained(target: Target) -> Iterator[None]:
    said: list[str] = []
    try:
        yield
    except* ClientError as group:
        said = list(dict.fromkeys(_sentence(error, target) for error in _each(group)))
    if said:
        raise CommandFailed("\n".join(said))


def _each(group: BaseExceptionGroup[ClientError]) -> Iterator[ClientError]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _each(error)
        else:
            yield error


def _sentence(error: ClientError, target: Target) -> str:
    endpoint = target.endpoint
    if isinstance(error, Unconfirmed):
        return _sentence(error.reason, target)
    if isinstance(error, InvalidAddress):
        return str(error).replace(f"({error.option})", f"(--{error.option})")
    if isinstance(error, LoginRefused) and target.user is None and target.token is None:
        return f"{error}\n  Name the user with --url {endpoint.scheme}://NAME@{endpoint.address}"
    if isinstance(error, NoConnection) and error.problem in _ADVICE:
        advice = _ADVICE[error.problem].format(host=endpoint.host, address=endpoint.address)
        return f"{error} {advice}" if advice[0].isupper() else f"{str(error).removesuffix('.')}; {advice}"
    return str(error)
