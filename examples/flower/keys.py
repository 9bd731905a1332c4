"""Certificates and keys for a Flower federation.

    python keys.py certificates --host superlink.example.org --node hospital-a --node hospital-b

makes a certificate authority (``ca.crt``; keep ``ca.key`` offline), the SuperLink's certificate
(``server.pem``, ``server.key``) and one key pair per node (``hospital-a``, ``hospital-a.pub``). Files that
exist are kept.
"""

from __future__ import annotations

import argparse
import datetime
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAYS = 825


def make_certificates(folder: Path, hosts: tuple[str, ...] = ("localhost", "127.0.0.1")) -> None:
    """A certificate authority and the SuperLink's certificate for ``hosts`` (names or addresses)."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "server.pem").exists():
        return
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)
    end = start + datetime.timedelta(days=DAYS)
    authority_key, server_key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    authority = _name("fedalpha federation authority")
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    ca = (
        _builder(authority, authority, authority_key.public_key(), start, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    server = (
        _builder(_name(hosts[0]), authority, server_key.public_key(), start, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_alternative(h) for h in hosts]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    _write(folder / "ca.key", _private(authority_key, serialization.PrivateFormat.PKCS8), secret=True)
    _write(folder / "ca.crt", ca.public_bytes(serialization.Encoding.PEM))
    _write(folder / "server.key", _private(server_key, serialization.PrivateFormat.PKCS8), secret=True)
    _write(folder / "server.pem", server.public_bytes(serialization.Encoding.PEM))


def make_node_key(folder: Path, name: str) -> Path:
    """A key pair for a node, as ``ssh-keygen -t ecdsa -b 384`` makes it; the path of the public key."""
    folder.mkdir(parents=True, exist_ok=True)
    public = folder / f"{name}.pub"
    if not public.exists():
        key = ec.generate_private_key(ec.SECP384R1())
        _write(folder / name, _private(key, serialization.PrivateFormat.OpenSSH), secret=True)
        openssh = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        _write(public, openssh + b"\n")
    return public


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    start: datetime.datetime,
    end: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
    )


def _private(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _write(path: Path, data: bytes, secret: bool = False) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
    with os.fdopen(handle, "wb") as file:
        file.write(data)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--host", action="append", default=[], help="name or address of the SuperLink (repeatable)")
    parser.add_argument("--node", action="append", default=[], help="name of a node (repeatable)")
    given = parser.parse_args()
    make_certificates(given.folder, tuple(given.host or ["localhost", "127.0.0.1"]))
    for node in given.node:
        make_node_key(given.folder, node)
    print("written to", given.folder, ":", ", ".join(sorted(p.name for p in given.folder.iterdir())))
