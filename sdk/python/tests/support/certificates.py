"""Certificates for tests, made with openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Pair:
    """A certificate and its private key, in PEM form."""

    certificate: bytes
    key: bytes


class Ca:
    """A CA whose files are in a folder of the test."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._name = name
        self._openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=CA"
            f" -keyout {name}.key -out {name}.pem"
        )
        self.certificate = (folder / f"{name}.pem").read_bytes()

    def issue(self, name: str) -> Pair:
        """Issues a certificate for 127.0.0.1 and `localhost`."""
        (self._folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost")
        self._openssl(
            f"req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name}"
            f" -keyout {name}.key -out {name}.csr"
        )
        self._openssl(
            f"x509 -req -in {name}.csr -CA {self._name}.pem -CAkey {self._name}.key -CAcreateserial -days 2"
            f" -extfile names -out {name}.pem"
        )
        return Pair((self._folder / f"{name}.pem").read_bytes(), (self._folder / f"{name}.key").read_bytes())

    def _openssl(self, arguments: str) -> None:
        subprocess.run(["openssl", *arguments.split()], cwd=self._folder, check=True, capture_output=True)
