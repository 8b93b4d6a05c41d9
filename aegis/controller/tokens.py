"""Who may change something. Tokens are random, shown once, and kept only as hashes.

Roles:
    admin      everything, tokens included
    operator   cordon, drain, return nodes; stop jobs
    node       the stream of one node's agent and launchers
"""

import secrets
import time
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

from aegis.controller.store import Store, StoreError


class Role(StrEnum):
    """What the bearer of a token may do."""

    ADMIN = "admin"
    OPERATOR = "operator"
    NODE = "node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What is known of a token; never the token itself."""

    id: str
    role: Role
    node: str = ""  # of a node's token
    name: str = ""  # who bears it: the actor of what it does
    created_at: float = 0.0


class Tokens:
    """All tokens, in memory by their hash, on disk before they are handed out."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_hash: dict[str, Token] = {}
        for hashed, *fields in store.rows(
            "SELECT sha256, id, role, node, name, created_at FROM tokens"
        ):
            identity, role, node, name, created_at = fields
            self._by_hash[str(hashed)] = Token(
                id=str(identity),
                role=Role(str(role)),
                node=str(node),
                name=str(name),
                created_at=float(str(created_at)),
            )

    def find(self, secret: str) -> Token | None:
        """The token that this secret is, if it is one."""
        return self._by_hash.get(_hash(secret))

    def all(self) -> list[Token]:
        """Every token, oldest first."""
        return sorted(self._by_hash.values(), key=lambda token: token.created_at)

    def mint(self, role: Role, *, node: str = "", name: str = "") -> tuple[str, Token]:
        """A new token: the secret, to be shown once, and what is kept. Writes to the disk."""
        secret = f"aegis_{role}_{secrets.token_urlsafe(32)}"
        token = Token(
            id=f"tok-{secrets.token_hex(4)}",
            role=role,
            node=node,
            name=name or node or role.value,
            created_at=time.time(),
        )
        row = (token.id, _hash(secret), role.value, node, token.name, token.created_at)
        with self._store.transaction() as connection:
            connection.execute("INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?)", row)
        self._by_hash[_hash(secret)] = token
        return secret, token

    def revoke(self, identity: str) -> bool:
        """Forget a token; whoever bears it is refused from now on. Writes to the disk."""
        hashed = next((key for key, one in self._by_hash.items() if one.id == identity), None)
        if hashed is None:
            return False
        with self._store.transaction() as connection:
            connection.execute("DELETE FROM tokens WHERE id = ?", (identity,))
        del self._by_hash[hashed]
        return True


def ensure_admin(tokens: Tokens, file: Path) -> None:
    """Mint an admin token into the file, for the first start or after the file was lost."""
    if file.exists():
        return
    secret, _token = tokens.mint(Role.ADMIN)
    part = file.with_suffix(".part")  # renamed when whole: an empty file would look like a token
    try:
        part.unlink(missing_ok=True)
        part.touch(mode=0o600)
        part.write_text(secret + "\n")
        part.rename(file)
    except OSError as error:
        raise StoreError(f"cannot write the admin token to {file}: {error.strerror}") from error


def _hash(secret: str) -> str:
    # A plain hash is enough: the secrets are random and long, so none can be guessed from it.
    return sha256(secret.encode()).hexdigest()
