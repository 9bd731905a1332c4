"""The primitives against the vectors of their standards, and the masks and shares made from them."""

from __future__ import annotations

import hmac

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedalpha.secure import keys
from fedalpha.secure.masks import add_mask
from fedalpha.secure.wire import Malformed, pack

h = bytes.fromhex


def test_x25519_as_in_rfc_7748() -> None:
    """Section 6.1: both public keys from the private ones, and the common secret."""
    alice = h("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    bob = h("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    a_public = h("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
    b_public = h("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
    assert (keys.public(alice), keys.public(bob)) == (a_public, b_public)
    secret = X25519PrivateKey.from_private_bytes(alice).exchange(X25519PublicKey.from_public_bytes(b_public))
    assert secret == h("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
    assert keys.agree(alice, b_public, "p", b"c") == keys.agree(bob, a_public, "p", b"c")


def test_hkdf_as_in_rfc_5869() -> None:
    """Test case 1 of appendix A."""
    found = HKDF(SHA256(), 42, salt=h("000102030405060708090a0b0c"), info=h("f0f1f2f3f4f5f6f7f8f9")).derive(
        b"\x0b" * 22
    )
    assert found == h("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865")


def test_keys_are_derived_as_in_rfc_5869() -> None:
    """Our use of it, by HMAC alone: extract without a salt, then one block of expand with the purpose and context."""
    secret, info = b"\x0b" * 22, pack(["fedalpha", "own mask", b"context"])
    extracted = hmac.digest(bytes(32), secret, "sha256")
    assert keys.derive(secret, "own mask", b"context") == hmac.digest(extracted, info + b"\1", "sha256")
    others = {keys.derive(secret, *one) for one in (("own mask", b""), ("pair mask", b"context"), ("own mask", b"c"))}
    assert len(others) == 3


def test_x25519_of_one_point_as_in_rfc_7748() -> None:
    """Section 5.2, the first vector."""
    scalar = h("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
    point = h("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
    secret = X25519PrivateKey.from_private_bytes(scalar).exchange(X25519PublicKey.from_public_bytes(point))
    assert secret == h("c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552")


def test_masks_are_aes_256_in_counter_mode_as_in_sp_800_38a() -> None:
    """A mask is the encryption of zeros from counter 0: the same as the single blocks of ECB (FIPS 197, C.3)."""
    key = h("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    counter = h("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
    plain = h("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51")
    stream = Cipher(algorithms.AES256(key), modes.CTR(counter)).encryptor()
    assert stream.update(plain) == h("601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5")
    blocks = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
    expected = b"".join(blocks.update(n.to_bytes(16)) for n in range(3))
    words = np.zeros(11, "<u4")
    add_mask(words, key, 1)
    assert words.tobytes() == expected[:44]


def test_a_mask_of_many_chunks_cancels() -> None:
    words = np.arange(300_001, dtype="<u8")
    add_mask(words, b"k" * 32, 1)
    assert (words != np.arange(300_001)).mean() > 0.999
    add_mask(words, b"k" * 32, -1)
    np.testing.assert_array_equal(words, np.arange(300_001))


def test_aes_gcm_as_in_its_specification() -> None:
    """McGrew and Viega, test case 14: a key, a nonce and a block of zeros."""
    assert AESGCM(bytes(32)).encrypt(bytes(12), bytes(16), None) == h(
        "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"
    )


def test_ed25519_as_in_rfc_8032() -> None:
    """Section 7.1, test 1: the empty message."""
    key = Ed25519PrivateKey.from_private_bytes(h("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"))
    assert key.public_key().public_bytes_raw() == h("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    assert key.sign(b"") == h(
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24"
        "655141438e7a100b"
    )


def test_shares_open_only_for_their_receiver_and_context() -> None:
    sealed = keys.seal(b"k" * 32, b"shares", b"from 1 to 2")
    assert keys.unseal(b"k" * 32, sealed, b"from 1 to 2") == b"shares"
    attempts = [(b"k" * 32, b"from 2 to 1", sealed), (b"j" * 32, b"from 1 to 2", sealed)]
    for key, context, content in (*attempts, (b"k" * 32, b"from 1 to 2", sealed[:-1]), (b"k" * 32, b"", b"")):
        with pytest.raises(Malformed, match="not encrypted for this client"):
            keys.unseal(key, content, context)


def test_a_key_that_makes_the_secret_known_is_refused() -> None:
    with pytest.raises(Malformed, match="a public key is not valid"):
        keys.agree(keys.fresh(), bytes(32), "share", b"")


def test_signatures_cover_their_purpose() -> None:
    key = Ed25519PrivateKey.generate()
    signature = keys.sign(key, "roster", b"content")
    assert keys.signed_by(key.public_key(), signature, "roster", b"content")
    assert not keys.signed_by(key.public_key(), signature, "survivors", b"content")
    assert not keys.signed_by(key.public_key(), b"", "roster", b"content")
