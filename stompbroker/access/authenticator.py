"""Decides who a client is, by password, token or certificate, and what it may do.

Law: a refusal never tells whether a user exists: an unknown one costs a hash, as a wrong password does. Rules change
only as a whole (`reload`, `look`): then every grant is outdated, and `renewed` gives the one that holds now.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from stompbroker.access.failures import LoginFailures, network_of
from stompbroker.access.grant import ANYBODY, Grant, Limits
from stompbroker.access.passwords import Decoys, Passwords, parameters
from stompbroker.access.tokens import BadToken, Claims, Tokens, load_keys, looks_like_token
from stompbroker.access.users import BUILT_IN_ROLES, LIMIT_KEYS, Users, UsersError, normal_subject
from stompbroker.access.users_file import load_users, stamp_of
from stompbroker.clock import NANOSECONDS
from stompbroker.errors import OperatorError, PeerViolation
from stompbroker.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from stompbroker.access.users_file import Stamp
    from stompbroker.clock import Clock

#: Verified tokens that are remembered, at about 1 KiB each with their grant.
MAX_TOKENS: Final = 10_000

log = structlog.get_logger()


class LoginRefused(PeerViolation):
    """`detail` is for the client; `reason` is for the log, and says more."""

    def __init__(self, detail: str, reason: str = "") -> None:
        super().__init__("login refused", detail)
        self.reason = reason or detail


class TooManyWrong(LoginRefused):
    """Nothing from this address is looked at for a while."""

    def __init__(self) -> None:
        super().__init__("too many wrong logins from this address; wait a minute")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a client has shown. Empty texts mean the same as none: some libraries always send both headers."""

    login: str | None = None
    passcode: str | None = field(default=None, repr=False)
    #: From `authorization: Bearer …`.
    token: str | None = field(default=None, repr=False)
    #: RFC 4514 subject of a verified client certificate.
    certificate: str | None = None
    #: The peer's host.
    address: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings:
    """The settings of the same names."""

    users_path: Path
    #: Empty: the file need not exist.
    users_file: str = ""
    password_memory: int = 19 * 1024 * 1024
    password_passes: int = 2
    token_keys: str = ""
    token_issuer: str = ""
    token_audience: str = ""
    token_leeway_s: float = 30.0
    max_user_connections: int = 0
    max_user_subscriptions: int = 0
    max_user_messages_per_s: int = 0
    max_login_failures: int = 20


@final
@dataclass(frozen=True, slots=True)
class _ByPassword:
    stored: str = field(repr=False)


@final
@dataclass(frozen=True, slots=True)
class _ByCertificate:
    subject: str


if TYPE_CHECKING:
    _Proof: TypeAlias = _ByPassword | _ByCertificate | Claims


@final
@dataclass(frozen=True, slots=True)
class _Rules:
    users: Users
    #: None if no keys are set.
    tokens: Tokens | None


@final
class Authenticator:
    """Make it inside a trio run; raises OperatorError if the files cannot be used.

    Invariants:
        every remembered grant follows from the current rules
        login stays required once it was: removing the last user must not open the broker to everybody
    """

    def __init__(self, settings: AccessSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        #: Woken after the rules have changed.
        self.changed = Signal()
        self.passwords = Passwords()
        self._failures = LoginFailures(settings.max_login_failures)
        self._key = secrets.token_bytes(32)
        self._grants: dict[tuple[str, _Proof], Grant] = {}
        self._verified: dict[bytes, Grant] = {}
        self._is_required = False
        #: Grows with every change of the rules.
        self.version = 0
        self._rules = _Rules(Users(), None)
        self._stamps = self._look_at_files()
        self._put_in_force(self._read())

    @property
    def is_required(self) -> bool:
        """There is a user, or there are keys for tokens; or there were, since the start."""
        return self._is_required

    async def check(self, credentials: Credentials, on_admitted: Callable[[], None] = lambda: None) -> Grant:
        """Who this is and what it may do. Raises LoginRefused.

        A password may have to wait for its turn, as long as that takes. `on_admitted` is called when the turn has
        come, and not at all where there is nothing to wait for.
        """
        if not self._is_required:
            return ANYBODY
        network = network_of(credentials.address)
        self._refuse_flood(network)
        if (token := self._token_of(credentials)) is not None:
            grant = self._grant_by_token(token, network)
        elif credentials.passcode:
            grant = await self._grant_by_password(credentials.login or "", credentials.passcode, network, on_admitted)
        elif credentials.certificate is not None:
            grant = self._grant_by_certificate(normal_subject(credentials.certificate))
        else:
            raise LoginRefused("this broker asks for login and passcode", "no passcode, token or certificate")
        if credentials.login and credentials.login != grant.user:
            raise LoginRefused(
                "login is not the user of the token or certificate; leave it out", f"this is the user {grant.user}"
            )
        return grant

    def is_flooded_by(self, address: str) -> bool:
        """Whether so many wrong logins came from there that no other is looked at."""
        return self._failures.are_too_many(network_of(address), self._clock.now_ns())

    def _refuse_flood(self, network: str) -> None:
        if self._failures.are_too_many(network, self._clock.now_ns()):
            raise TooManyWrong

    def _wrong(self, network: str, detail: str, reason: str) -> LoginRefused:
        self._failures.note(network, self._clock.now_ns())
        return LoginRefused(detail, reason)

    # Passwords

    async def _grant_by_password(
        self, name: str, password: str, network: str, on_admitted: Callable[[], None]
    ) -> Grant:
        def take_turn() -> None:
            # Again: meanwhile others in line, from the same address, may have been wrong.
            self._refuse_flood(network)
            on_admitted()

        user = self._rules.users.users.get(name)
        stored = (user.password if user is not None else None) or self._decoys.decoy(name)
        is_suspect = self._failures.count(network, self._clock.now_ns()) > 0
        is_right = await self.passwords.is_right(stored, password, is_suspect=is_suspect, on_turn=take_turn)
        # The rules may have changed while it was hashed.
        grant = self._grant(name, _ByPassword(stored)) if is_right else None
        if grant is None:
            reason = "wrong passcode" if user is not None else "unknown user"
            raise self._wrong(network, "wrong login or passcode", reason)
        return grant

    # Tokens

    def _token_of(self, credentials: Credentials) -> str | None:
        if credentials.token:
            return credentials.token
        passcode = credentials.passcode or ""
        return passcode if self._rules.tokens is not None and looks_like_token(passcode) else None

    def _grant_by_token(self, token: str, network: str) -> Grant:
        key = hashlib.blake2b(token.encode(), key=self._key, digest_size=32).digest()
        now_ns = self._clock.now_ns()
        known = self._verified.get(key)
        if known is not None and known.expires_at_ns is not None and now_ns < known.expires_at_ns:
            return known
        if self._rules.tokens is None:
            raise LoginRefused("this broker accepts no tokens; send login and passcode")
        try:
            claims = self._rules.tokens.verify(token, now_ns)
        except BadToken as error:
            raise self._wrong(network, f"the token is refused: {error}", f"token: {error}") from None
        grant = self._grant(claims.user, claims)
        if grant is None:
            raise LoginRefused(
                f"the token is right, but its user {claims.user} has neither an entry nor a role here; add it with "
                "`stompbroker users add`, or give the token a role (claim roles) that this broker knows"
            )
        self._verified.pop(key, None)
        if len(self._verified) >= MAX_TOKENS:
            del self._verified[next(iter(self._verified))]
        self._verified[key] = grant
        return grant

    # Certificates

    def _grant_by_certificate(self, subject: str) -> Grant:
        name = self._certified.get(subject)
        grant = self._grant(name, _ByCertificate(subject)) if name is not None else None
        if grant is None:
            raise LoginRefused(
                f"no user has the certificate {subject}; send login and passcode, or set it as certificate of a user"
            )
        return grant

    # Grants

    def renewed(self, grant: Grant) -> Grant | None:
        """What holds now for somebody who was let in before: None if the user is gone, the password or certificate is
        another, or the key of the token is not accepted any more."""
        if grant.proof is None:
            return None if self._is_required and not grant.is_of_bridge else grant
        assert isinstance(grant.proof, _ByPassword | _ByCertificate | Claims)
        return self._grant(grant.user, grant.proof)

    def _grant(self, name: str, proof: _Proof) -> Grant | None:
        """The one grant for this user and proof, or None if it proves nothing any more."""
        found = self._grants.get((name, proof))
        if found is not None:
            return found
        users = self._rules.users
        user = users.users.get(name)
        roles = set(user.roles) if user is not None else set()
        claimed = roles | (proof.roles if isinstance(proof, Claims) else frozenset())
        if isinstance(proof, Claims):
            tokens = self._rules.tokens
            if tokens is None or all(key.fingerprint != proof.key for key in tokens.keys):
                return None
            roles |= users.known_roles(proof.roles)
            is_valid = user is not None or bool(roles)
        elif isinstance(proof, _ByCertificate):
            is_valid = user is not None and user.certificate == proof.subject
        else:
            is_valid = user is not None and user.password == proof.stored
        if not is_valid:
            return None
        settings = self._settings
        limits = {field: getattr(settings, key.replace("max_", "max_user_")) for key, field in LIMIT_KEYS.items()}
        if user is not None:
            limits |= {LIMIT_KEYS[key]: value for key, value in user.limits.items()}
        grant = Grant(
            user=name,
            permissions=users.permissions(name, roles),
            roles=frozenset(roles),
            limits=Limits(**limits),
            # A role that is not known, any more or yet, would have restricted it.
            is_unbounded=claimed.issubset(BUILT_IN_ROLES) and (user is None or not user.patterns),
            expires_at_ns=proof.expires_at_ns if isinstance(proof, Claims) else None,
            proof=proof,
        )
        if not isinstance(proof, Claims):  # those are as many as tokens: `_verified` has a bound
            self._grants[name, proof] = grant
        return grant

    # Rules

    def reload(self) -> None:
        """Read the files now. If they cannot be used, the old rules stay, and the mistakes are logged."""
        self._stamps = self._look_at_files()
        self._adopt(self._read_or_complain())

    async def look(self) -> None:
        """Read the files again if they have changed since the last look."""
        stamps = self._look_at_files()
        if stamps == self._stamps:
            return
        self._stamps = stamps
        # In a thread: a thousand users take a tenth of a second.
        rules = await trio.to_thread.run_sync(self._read_or_complain)
        if self._stamps is stamps:  # otherwise `reload` has read them later
            self._adopt(rules)

    def _look_at_files(self) -> tuple[Stamp, Stamp]:
        return stamp_of(self._settings.users_path), stamp_of(Path(self._settings.token_keys).expanduser())

    def _read_or_complain(self) -> _Rules:
        try:
            return self._read()
        except OperatorError as error:
            log.error("users and keys were not read again; the old ones stay", problem=str(error))
            return self._rules

    def _read(self) -> _Rules:
        settings = self._settings
        # Once there were users, a file that is gone is a mistake: an editor may be writing a new one.
        is_needed = bool(settings.users_file) or bool(self._rules.users.users)
        stamp = stamp_of(settings.users_path)
        users = load_users(settings.users_path, is_needed=is_needed)
        if stamp_of(settings.users_path) != stamp:
            raise UsersError(f"The file of users {settings.users_path} is being written.")
        if stamp is not None and not stamp[1] and self._rules.users.users:
            # Whoever copies a file over another one empties that first.
            where = settings.users_path
            raise UsersError(f"The file of users {where} is empty; `stompbroker users rm` removes the last user.")
        if not settings.token_keys:
            return _Rules(users, None)
        tokens = Tokens(
            keys=load_keys(Path(settings.token_keys).expanduser()),
            issuer=settings.token_issuer,
            audience=settings.token_audience,
            leeway_ns=int(settings.token_leeway_s * NANOSECONDS),
        )
        return _Rules(users, tokens)

    def _adopt(self, rules: _Rules) -> None:
        if rules != self._rules:
            self._put_in_force(rules)
            log.info("users and keys read again", users=len(rules.users.users), roles=len(rules.users.roles))
            self.changed.wake()

    def _put_in_force(self, rules: _Rules) -> None:
        self._rules = rules
        self.version += 1
        users = rules.users.users
        self._is_required = self._is_required or bool(users) or rules.tokens is not None
        self._certified = {user.certificate: name for name, user in users.items() if user.certificate is not None}
        self._decoys = Decoys(
            [user.password for user in users.values() if user.password is not None],
            parameters(self._settings.password_memory, self._settings.password_passes),
        )
        self.passwords.forget()
        self._grants.clear()
        self._verified.clear()
