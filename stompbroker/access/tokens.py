"""JSON Web Tokens: the file of keys read, and tokens verified.

Law: which algorithms are accepted follows from the kind of key alone, never from the token. So there is no `none`, and
no public key is ever taken for a shared secret. Knows no users.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import urlsafe_b64decode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from stompbroker.access.users import NAME_RULE, is_name
from stompbroker.clock import NANOSECONDS
from stompbroker.errors import BrokerError, OperatorError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Bytes of a shared secret that can be guessed less easily than the hash it is used with (RFC 7518, section 3.2).
MIN_SECRET_BYTES: Final = 32
MIN_RSA_BITS: Final = 2048
#: Characters of a token; real ones have up to 4 KiB.
MAX_TOKEN: Final = 16 * 1024
#: Later instants are mistakes, and too large for arithmetic.
_MAX_TIME_S: Final = 1e11

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_PEM: Final = re.compile(r"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----", re.DOTALL)
#: Bytes of a secret → the algorithms it is long enough for.
_SECRET_ALGORITHMS: Final = {32: "HS256", 48: "HS384", 64: "HS512"}
_RSA_ALGORITHMS: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_SUPPORTED: Final = "keys may be RSA, EC (P-256, P-384, P-521) or Ed25519"
_CURVE_ALGORITHMS: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


class BadToken(BrokerError):
    """The token is not accepted; the text says why."""


@final
@dataclass(frozen=True, slots=True)
class Key:
    #: What PyJWT verifies with: bytes of a secret, or an object of `cryptography`.
    verifier: Any = field(repr=False, compare=False)
    algorithms: frozenset[str]
    #: Tells keys apart over two readings of the file.
    fingerprint: str
    #: The key's id, if it has one.
    kid: str | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What a verified token says."""

    user: str
    roles: frozenset[str]
    expires_at_ns: int
    #: Of the key that it was verified with.
    key: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    keys: tuple[Key, ...]
    #: Empty: any.
    issuer: str
    audience: str
    leeway_ns: int

    def verify(self, token: str, now_ns: int) -> Claims:
        """Raises BadToken."""
        import jwt

        if not looks_like_token(token):
            raise BadToken("it is no JSON Web Token")
        try:
            header = jwt.get_unverified_header(token)
            for key in self._candidates(header):
                try:
                    claims = jwt.decode(
                        token,
                        key=key.verifier,
                        algorithms=sorted(key.algorithms),
                        audience=self.audience or None,
                        issuer=self.issuer or None,
                        options={
                            "require": ["exp", "sub"],
                            "verify_aud": bool(self.audience),
                            "verify_iss": bool(self.issuer),
                            # Compared below, with the broker's clock.
                            "verify_exp": False,
                            "verify_nbf": False,
                            "verify_iat": False,
                        },
                    )
                except jwt.InvalidSignatureError:
                    continue
                return self._checked(claims, key, now_ns)
        except (jwt.PyJWTError, ValueError, RecursionError) as error:
            raise BadToken(f"it is not accepted: {error}") from None
        raise BadToken("it is not signed with a key of this broker")

    def _candidates(self, header: dict[str, Any]) -> Iterator[Key]:
        algorithm, kid = header.get("alg"), header.get("kid")
        for key in self.keys:
            # The algorithm may be anything that JSON has.
            if algorithm in tuple(key.algorithms) and (kid is None or key.kid in (None, kid)):
                yield key

    def _checked(self, claims: dict[str, Any], key: Key, now_ns: int) -> Claims:
        expires_at_ns = _instant(claims, "exp")
        # No leeway here: the connection would end at once.
        if expires_at_ns <= now_ns:
            raise BadToken("it has expired")
        for name in ("nbf", "iat"):
            if name in claims and _instant(claims, name) > now_ns + self.leeway_ns:
                raise BadToken("it is not valid yet")
        roles = claims.get("roles", [])
        if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
            raise BadToken("its claim roles is no list of texts")
        if not is_name(claims["sub"]):
            raise BadToken(f"its subject (sub) cannot be a user: {NAME_RULE}")
        return Claims(user=claims["sub"], roles=frozenset(roles), expires_at_ns=expires_at_ns, key=key.fingerprint)


def looks_like_token(text: str) -> bool:
    """Whether it cannot be meant as a password: three parts, of which the first is an object of JSON."""
    if len(text) > MAX_TOKEN or _TOKEN.fullmatch(text) is None:
        return False
    head = text.partition(".")[0]
    try:
        return isinstance(json.loads(urlsafe_b64decode(head + "=" * (-len(head) % 4))), dict)
    except (ValueError, RecursionError):
        return False


def _instant(claims: dict[str, Any], name: str) -> int:
    value = claims[name]
    # JSON in Python may be NaN, which is not between these either.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MAX_TIME_S:
        raise BadToken(f"its claim {name} is no time")
    return int(value * NANOSECONDS)


# Keys ----------------------------------------------------------------------------------------------------------------


def load_keys(path: Path) -> tuple[Key, ...]:
    """The keys of a file: public keys in PEM, a JWK set, or a shared secret. Raises OperatorError."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise OperatorError(f"The keys for tokens (token_keys, {path}) cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise OperatorError(f"The keys for tokens (token_keys, {path}) are not text.") from None
    try:
        if "-----BEGIN" in text:
            return _read_pem(text)
        if text.startswith("{"):
            return _read_jwk_set(text)
        return (_secret_key(text.encode()),)
    except _BadKey as error:
        raise OperatorError(f"The keys for tokens (token_keys, {path}) cannot be used: {error}.") from None


class _BadKey(Exception):
    pass


def _read_pem(text: str) -> tuple[Key, ...]:
    _require_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    blocks = list(_PEM.finditer(text))
    if not blocks or any(block[1] not in ("PUBLIC KEY", "RSA PUBLIC KEY") for block in blocks):
        raise _BadKey("a PEM file may hold blocks BEGIN PUBLIC KEY, and nothing else; a private key stays elsewhere")
    try:
        return tuple(_public_key(load_pem_public_key(block[0].encode())) for block in blocks)
    except ValueError:
        raise _BadKey("a public key in it is damaged") from None
    except UnsupportedAlgorithm:
        raise _BadKey(_SUPPORTED) from None


def _read_jwk_set(text: str) -> tuple[Key, ...]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise _BadKey("it begins like JSON, but is not valid JSON") from None
    found = content.get("keys", [content])
    if not isinstance(found, list) or not found or not all(isinstance(one, dict) for one in found):
        raise _BadKey('a JWK set is {"keys": […]} with at least one key')
    keys = tuple(_read_jwk(one) for one in found if one.get("use", "sig") == "sig")
    if not keys:
        raise _BadKey("no key in it is for signatures")
    return keys


def _read_jwk(content: dict[str, Any]) -> Key:
    kid = content.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise _BadKey("the kid of a key is no text")
    if content.get("kty") != "oct":
        _require_cryptography()
    if "d" in content:
        raise _BadKey("it holds a private key; the broker needs the public part only")
    import jwt

    try:
        verifier = jwt.PyJWK({name: value for name, value in content.items() if name != "alg"}).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError):
        raise _BadKey(f"key {kid or ''} is damaged, or of a kind that is not supported".replace("  ", " ")) from None
    key = _secret_key(verifier) if isinstance(verifier, bytes) else _public_key(verifier)
    algorithms = frozenset(name for name in key.algorithms if name == content.get("alg", name))
    if not algorithms:
        raise _BadKey("the alg of a key does not go with its kind; there are " + ", ".join(sorted(key.algorithms)))
    return Key(key.verifier, algorithms, key.fingerprint, kid)


def _secret_key(secret: bytes) -> Key:
    from jwt import InvalidKeyError
    from jwt.algorithms import get_default_algorithms

    if len(secret) < MIN_SECRET_BYTES:
        raise _BadKey(f"a shared secret has at least {MIN_SECRET_BYTES} bytes, this one has {len(secret)}")
    try:
        get_default_algorithms()["HS256"].prepare_key(secret)
    except InvalidKeyError:
        raise _BadKey("it is a public key in a form that is not supported; use PEM or a JWK set") from None
    algorithms = frozenset(name for length, name in _SECRET_ALGORITHMS.items() if len(secret) >= length)
    return Key(secret, algorithms, hashlib.sha256(secret).hexdigest())


def _public_key(verifier: Any) -> Key:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    algorithms: frozenset[str] = frozenset()
    match verifier:
        case RSAPublicKey():
            if verifier.key_size < MIN_RSA_BITS:
                raise _BadKey(f"an RSA key has at least {MIN_RSA_BITS} bits, this one has {verifier.key_size}")
            algorithms = _RSA_ALGORITHMS
        case EllipticCurvePublicKey() if verifier.curve.name in _CURVE_ALGORITHMS:
            algorithms = frozenset({_CURVE_ALGORITHMS[verifier.curve.name]})
        case Ed25519PublicKey():
            algorithms = frozenset({"EdDSA"})
    if not algorithms:
        raise _BadKey(_SUPPORTED)
    encoded = verifier.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return Key(verifier, algorithms, hashlib.sha256(encoded).hexdigest())


def _require_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise OperatorError(
            "Tokens with public keys (token_keys) need the library cryptography: install stompbroker[certificates], "
            "or use a shared secret."
        ) from None
