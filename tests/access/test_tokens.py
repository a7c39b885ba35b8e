"""Which keys and which tokens are accepted. Every way around a signature is tried."""

from __future__ import annotations

import base64
import json
import sys
from typing import TYPE_CHECKING, Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from stompbroker.access.tokens import BadToken, Key, Tokens, load_keys, looks_like_token
from stompbroker.clock import NANOSECONDS
from stompbroker.errors import OperatorError

if TYPE_CHECKING:
    from pathlib import Path

NOW_S = 1_800_000_000
SECRET = "a shared secret of forty-eight characters, or more"
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PRIVATE_KEYS: dict[str, Any] = {
    "RS256": RSA_KEY,
    "PS512": RSA_KEY,
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "ES384": ec.generate_private_key(ec.SECP384R1()),
    "ES512": ec.generate_private_key(ec.SECP521R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}


def pem(private_key: Any) -> str:
    public = private_key.public_key()
    return str(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode())


def jwk(algorithm: str, **more: object) -> dict[str, Any]:
    handler: Any = jwt.get_algorithm_by_name(algorithm)
    found = json.loads(handler.to_jwk(PRIVATE_KEYS[algorithm].public_key()))
    return {name: value for name, value in found.items() if name != "key_ops"} | more


@pytest.fixture
def keys_of(tmp_path: Path) -> Any:
    def load(*texts: str) -> tuple[Key, ...]:
        (tmp_path / "keys").write_text("\n".join(texts))
        return load_keys(tmp_path / "keys")

    return load


def tokens(keys: tuple[Key, ...], **settings: str) -> Tokens:
    given = {"issuer": "", "audience": ""} | settings
    return Tokens(keys=keys, leeway_ns=30 * NANOSECONDS, **given)


def token(key: Any = SECRET, algorithm: str = "HS256", headers: dict[str, Any] | None = None, **claims: Any) -> str:
    content = {"sub": "alice", "exp": NOW_S + 60} | claims
    content = {name: value for name, value in content.items() if value is not None}
    return jwt.encode(content, key, algorithm, headers=headers)


def in_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def forged(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    return ".".join(
        [in_base64(json.dumps(header).encode()), in_base64(json.dumps(claims).encode()), in_base64(signature)]
    )


def refusal(verifier: Tokens, text: str, now_s: float = NOW_S) -> str:
    with pytest.raises(BadToken) as error:
        verifier.verify(text, int(now_s * NANOSECONDS))
    return str(error.value)


# Keys


@pytest.mark.parametrize("algorithm", PRIVATE_KEYS)
def test_a_public_key_in_pem_or_as_jwk_verifies_what_its_private_key_has_signed(keys_of: Any, algorithm: str) -> None:
    signed = token(PRIVATE_KEYS[algorithm], algorithm)

    for keys in (
        keys_of(pem(PRIVATE_KEYS[algorithm])),
        keys_of(json.dumps({"keys": [jwk(algorithm)]})),
        keys_of(json.dumps(jwk(algorithm))),
    ):
        claims = tokens(keys).verify(signed, NOW_S * NANOSECONDS)

        assert (claims.user, claims.expires_at_ns) == ("alice", (NOW_S + 60) * NANOSECONDS)
        assert claims.key == keys[0].fingerprint


def test_several_public_keys_in_one_file_are_all_accepted(keys_of: Any) -> None:
    keys = keys_of("# the old one", pem(PRIVATE_KEYS["ES256"]), "# the new one", pem(RSA_KEY))

    for algorithm in ("ES256", "RS256"):
        assert tokens(keys).verify(token(PRIVATE_KEYS[algorithm], algorithm), NOW_S * NANOSECONDS).user == "alice"


@pytest.mark.parametrize(
    ("length", "algorithms"), [(32, {"HS256"}), (48, {"HS256", "HS384"}), (64, {"HS256", "HS384", "HS512"})]
)
def test_a_shared_secret_is_used_with_hashes_it_is_long_enough_for(
    keys_of: Any, length: int, algorithms: set[str]
) -> None:
    (key,) = keys_of("x" * length, "")

    assert key.algorithms == algorithms
    assert "xxx" not in repr(key)
    with pytest.raises(OperatorError, match="a shared secret has at least 32 bytes, this one has 31"):
        keys_of("x" * 31 + "\n")


def test_the_id_of_a_key_and_its_algorithm_restrict_what_it_is_used_for(keys_of: Any) -> None:
    keys = keys_of(json.dumps({"keys": [jwk("ES256", kid="one", alg="ES256"), jwk("RS256", kid="two", alg="RS256")]}))
    verifier, now_ns = tokens(keys), NOW_S * NANOSECONDS

    assert verifier.verify(token(RSA_KEY, "RS256", {"kid": "two"}), now_ns)
    assert verifier.verify(token(RSA_KEY, "RS256"), now_ns)
    for signed in (token(RSA_KEY, "RS256", {"kid": "one"}), token(RSA_KEY, "PS256", {"kid": "two"})):
        assert refusal(verifier, signed) == "it is not signed with a key of this broker"


DAMAGED = {
    "-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----": "a public key in it is damaged",
    "-----BEGIN PUBLIC KEY-----": "a PEM file may hold blocks BEGIN PUBLIC KEY, and nothing else",
    RSA_KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(): "a private key stays elsewhere",
    pem(ed448.Ed448PrivateKey.generate()): "keys may be RSA, EC",
    pem(ec.generate_private_key(ec.SECP256K1())): "keys may be RSA, EC",
    pem(rsa.generate_private_key(public_exponent=65537, key_size=1024)): "an RSA key has at least 2048 bits",
    "ssh-rsa " + "A" * 64: "it is a public key in a form that is not supported",
    "{": "it begins like JSON, but is not valid JSON",
    '{"keys": []}': "with at least one key",
    '{"keys": 1}': "with at least one key",
    '{"keys": [1]}': "with at least one key",
    '{"keys": [{"kty": "oct", "k": "c2hvcnQ"}]}': "a shared secret has at least 32 bytes",
    '{"keys": [{"kty": "oct"}]}': "damaged",
    '{"keys": [{"kty": "RSA", "n": 1}]}': "damaged",
    '{"keys": [{"kty": "X"}]}': "of a kind that is not supported",
    '{"kty": "X", "kid": 1}': "the kid of a key is no text",
    json.dumps(jwk("RS256", d="AQAB")): "it holds a private key",
    json.dumps(jwk("RS256", alg="HS256")): "the alg of a key does not go with its kind",
    json.dumps(jwk("RS256", alg=["RS256"])): "the alg of a key does not go with its kind",
    json.dumps(jwk("RS256", use="enc")): "no key in it is for signatures",
}


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_a_file_without_usable_keys_is_a_sentence_at_the_start(keys_of: Any, text: str) -> None:
    with pytest.raises(OperatorError) as error:
        keys_of(text)

    assert DAMAGED[text] in str(error.value)
    assert "token_keys" in str(error.value)


def test_a_file_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"cannot be read: No such file"):
        load_keys(tmp_path / "keys")
    (tmp_path / "keys").write_bytes(b"\xff" * 40)
    with pytest.raises(OperatorError, match="are not text"):
        load_keys(tmp_path / "keys")


def test_public_keys_without_the_library_for_them_are_a_sentence_and_secrets_work(
    keys_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)

    for text in (pem(RSA_KEY), json.dumps(jwk("RS256"))):
        with pytest.raises(OperatorError, match=r"install stompbroker\[certificates\]"):
            keys_of(text)
    assert keys_of(SECRET)


# Tokens


def test_issuer_and_audience_must_be_those_that_are_set(keys_of: Any) -> None:
    verifier = tokens(keys_of(SECRET), issuer="us", audience="broker")

    assert verifier.verify(token(iss="us", aud=["broker", "others"]), NOW_S * NANOSECONDS)
    wrong: Any
    for wrong in ({}, {"iss": "us"}, {"aud": "broker"}, {"iss": "usa", "aud": "broker"}, {"iss": "us", "aud": "brok"}):
        assert refusal(verifier, token(**wrong)).startswith("it is not accepted: ")
    assert tokens(keys_of(SECRET)).verify(token(iss="x", aud="y"), NOW_S * NANOSECONDS)


def test_a_token_holds_from_its_begin_less_the_leeway_until_its_end_and_not_a_moment_longer(keys_of: Any) -> None:
    verifier = tokens(keys_of(SECRET))
    text = token(nbf=NOW_S, iat=NOW_S, exp=NOW_S + 60)

    for at_s in (NOW_S - 30, NOW_S, NOW_S + 59.999):
        assert verifier.verify(text, int(at_s * NANOSECONDS))
    assert refusal(verifier, text, NOW_S - 31) == "it is not valid yet"
    assert refusal(verifier, token(iat=NOW_S + 31)) == "it is not valid yet"
    assert refusal(verifier, text, NOW_S + 60) == "it has expired"


@pytest.mark.parametrize("exp", [None, "tomorrow", True, [], float("nan"), float("inf"), 1e300, -1, 10**400])
def test_a_token_without_an_end_is_refused(keys_of: Any, exp: Any) -> None:
    claims = {"sub": "alice"} | ({} if exp is None else {"exp": exp})
    signed = jwt.api_jws.encode(json.dumps(claims).encode(), SECRET, "HS256")

    refusal(tokens(keys_of(SECRET)), signed)


@pytest.mark.parametrize("sub", [">", "*", "a.b", "", "a b", "DLQ", "x" * 65, None, 5, ["a"]])
def test_a_subject_that_cannot_be_a_user_is_refused(keys_of: Any, sub: Any) -> None:
    claims = {"exp": NOW_S + 60} | ({} if sub is None else {"sub": sub})
    signed = jwt.api_jws.encode(json.dumps(claims).encode(), SECRET, "HS256")

    refusal(tokens(keys_of(SECRET)), signed)


@pytest.mark.parametrize("roles", ["operator", {"operator": 1}, [1], [["operator"]]])
def test_roles_must_be_a_list_of_texts(keys_of: Any, roles: Any) -> None:
    verifier = tokens(keys_of(SECRET))

    assert refusal(verifier, token(roles=roles)) == "its claim roles is no list of texts"
    assert verifier.verify(token(roles=["a", "b"]), NOW_S * NANOSECONDS).roles == {"a", "b"}


def test_no_token_gets_around_the_signature(keys_of: Any) -> None:
    claims = {"sub": "alice", "exp": NOW_S + 60}
    public = pem(RSA_KEY)
    hmac = jwt.get_algorithm_by_name("HS256")

    def with_public_key_as_secret(secret: bytes) -> str:
        signed = forged({"alg": "HS256", "typ": "JWT"}, claims).rpartition(".")[0]
        return f"{signed}.{in_base64(hmac.sign(signed.encode(), secret))}"

    attacks = [
        *(forged({"alg": name}, claims) for name in ("none", "None", "NONE", "nOnE", "", None, 1, ["none"])),
        forged({}, claims),
        *(with_public_key_as_secret(secret) for secret in (public.encode(), public.strip().encode(), b"")),
        token("x" * 48),
        token(rsa.generate_private_key(public_exponent=65537, key_size=2048), "RS256"),
        token(ec.generate_private_key(ec.SECP256R1()), "ES256"),
        token(RSA_KEY, "RS256").rpartition(".")[0] + ".",
        forged({"alg": "ES256"}, claims, b"\0" * 64),
        # A key that the token brings along.
        token("x" * 48, headers={"jwk": {"kty": "oct", "k": in_base64(b"x" * 48)}}),
        token("x" * 48, headers={"kid": "/dev/null", "jku": "http://example.com/keys"}),
        token(RSA_KEY, "RS256", {"crit": ["exp"]}),
        forged({"alg": "RS256", "kid": 1}, claims),
    ]
    for keys in (keys_of(public), keys_of(json.dumps(jwk("RS256")))):
        assert tokens(keys).verify(token(RSA_KEY, "RS256"), NOW_S * NANOSECONDS)
        for attack in attacks:
            refusal(tokens(keys), attack)


def test_what_is_changed_in_a_token_is_noticed(keys_of: Any) -> None:
    head, body, signature = token().split(".")
    other = token(sub="admin").split(".")[1]

    assert (
        refusal(tokens(keys_of(SECRET)), f"{head}.{other}.{signature}") == "it is not signed with a key of this broker"
    )
    assert body != other


@given(st.text(max_size=30) | st.binary(max_size=30).map(in_base64), st.binary(max_size=30), st.binary(max_size=10))
def test_garbage_is_refused_and_nothing_else(head: str, body: bytes, signature: bytes) -> None:
    verifier = tokens((Key(SECRET.encode(), frozenset({"HS256"}), "f"),))
    valid = in_base64(b'{"alg":"HS256"}')
    hmac = jwt.get_algorithm_by_name("HS256")
    payload = f"{valid}.{in_base64(body)}"

    for text in (
        head,
        f"{head}.{in_base64(body)}.{in_base64(signature)}",
        f"{payload}.{in_base64(signature)}",
        f"{payload}.{in_base64(hmac.sign(payload.encode(), SECRET.encode()))}",
    ):
        refusal(verifier, text)


def test_deeply_nested_json_is_refused(keys_of: Any) -> None:
    deep = in_base64(b"[" * 5_000)

    refusal(tokens(keys_of(SECRET)), f"{deep}.e30.x")
    refusal(tokens(keys_of(SECRET)), jwt.api_jws.encode(b"[" * 5_000, SECRET, "HS256"))


def test_only_what_has_three_parts_and_no_great_length_looks_like_a_token() -> None:
    for text in ("e30.b.c", "e30.b.", "eyJhbGciOiJub25lIn0.b.c"):
        assert looks_like_token(text)
    for text in ("", "e30.b", "e30.b.c.d", "e 30.c.d", "e30.b.c\n", "hunter2", "ä.b.c", "e30." + "b" * 16_384 + ".c"):
        assert not looks_like_token(text)
    # Passwords that somebody may have.
    for text in ("correct.horse.battery", "a.b.c", "MTIz.b.c", "W10.b.c"):
        assert not looks_like_token(text)


def test_a_key_of_a_kind_that_the_library_does_not_know_is_a_sentence(keys_of: Any) -> None:
    """A public key on the curve brainpoolP160r1."""
    text = (
        "-----BEGIN PUBLIC KEY-----\nMEIwFAYHKoZIzj0CAQYJKyQDAwIIAQEBAyoABL7VrxaP6lg83p88zjoWqTOU60O+\n"
        "vtWvFo/qWDzenzzOOhapM5TrQ74=\n-----END PUBLIC KEY-----"
    )
    with pytest.raises(OperatorError, match="cannot be used"):
        keys_of(text)
