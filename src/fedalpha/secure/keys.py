"""Keys and ciphers of the secure sum, all from `cryptography`.

X25519 (RFC 7748) agrees on secrets, HKDF-SHA256 (RFC 5869) derives a key for each purpose from them, AES-256-GCM
carries shares from client to client through the server, AES-256-CTR expands a key to a mask, and Ed25519 (RFC 8032)
signs. Every derived key serves one purpose in one session.
"""

from __future__ import annotations

import hashlib
import os

from fedalpha.secure.wire import Malformed, pack

try:
    from cryptography.exceptions import InvalidSignature, InvalidTag
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError:
    raise ModuleNotFoundError(
        "secure sums need the package cryptography: pip install 'fedalpha[secure]'", name="cryptography"
    ) from None

KEY = DIGEST = 32
_NONCE, _TAG = 12, 16
SEALED = _NONCE + _TAG
"""The number of bytes by which a sealed message is longer than its content."""
SIGNATURE = 64


def fresh(size: int = KEY) -> bytes:
    """Secret bytes from the system's generator."""
    return os.urandom(size)


def public(private: bytes) -> bytes:
    """The public key of a private X25519 key of 32 bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: bytes, other: bytes, purpose: str, context: bytes) -> bytes:
    """The key that two parties share for one purpose; both compute the same bytes."""
    try:
        secret = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:  # a point of small order: the secret would not depend on the keys
        raise Malformed("a public key is not valid") from None
    return derive(secret, purpose, context)


def usable(other: bytes) -> bool:
    """Whether secrets can be agreed on with a public key; they cannot with a point of small order."""
    try:
        agree(fresh(), other, "check", b"")
    except Malformed:
        return False
    return True


def derive(secret: bytes, purpose: str, context: bytes) -> bytes:
    return HKDF(SHA256(), KEY, salt=None, info=pack(["fedalpha", purpose, context])).derive(secret)


def seal(key: bytes, content: bytes, context: bytes) -> bytes:
    """Encrypt and authenticate; ``context`` is also authenticated."""
    nonce = fresh(_NONCE)
    return nonce + AESGCM(key).encrypt(nonce, content, context)


def unseal(key: bytes, sealed: bytes, context: bytes) -> bytes:
    try:
        return AESGCM(key).decrypt(sealed[:_NONCE], sealed[_NONCE:], context)
    except (InvalidTag, ValueError):
        raise Malformed("a share was not encrypted for this client in this session") from None


def stream(key: bytes) -> CipherContext:
    """The generator of a mask: AES-256 in counter mode from 0; encrypting zeros gives its bytes."""
    return Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()


def commitment(secret: bytes) -> bytes:
    """The commitment to a random secret of 32 bytes, by which the server checks whether it has recovered the secret."""
    return hashlib.sha256(pack(["fedalpha", "commitment", secret])).digest()


def digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def signing_key() -> Ed25519PrivateKey:
    """A new signing key."""
    return Ed25519PrivateKey.generate()


def sign(key: Ed25519PrivateKey, purpose: str, content: bytes) -> bytes:
    return key.sign(pack(["fedalpha", purpose, content]))


def signed_by(key: Ed25519PublicKey, signature: bytes, purpose: str, content: bytes) -> bool:
    try:
        key.verify(signature, pack(["fedalpha", purpose, content]))
    except InvalidSignature:
        return False
    return True
