"""What does Sigstore say about a skill's signature? Verification only, and without a network.

The bundle `SKILL.sigstore.json` carries the signature, a certificate that says who made it, and the
proof that a public log has both. The extra `sigstore` verifies all of it against the trust root
inside its own package, or against `sigstore_root.json` of the user's configuration for those who
run a Sigstore of their own. Which identities count is for the user's list to say (`signers.py`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from satchel._language import say
from satchel._optional import require
from satchel.errors import Changed, Refused, SettingsError, SkillBroken
from satchel.skill.tree import read_whole
from satchel.store.signers import list_signers, user_signers
from satchel.store.statement import BUNDLE, signed_digest_of, statement, statement_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.skill.tree import Tree
    from satchel.store.signers import Signers

_MAX_BUNDLE = 1 << 20
_PUBLIC = "https%3A%2F%2Ftuf-repo-cdn.sigstore.dev"
"""The folder of the public trust root inside the package."""


class _Anybody:
    """Asks nothing: who made it is asked afterwards. A stranger's good signature is no forgery."""

    def verify(self, cert: object) -> None:
        """Accept any certificate that the trust root accepts."""


def verify_bundle(
    tree: Tree, signers: Signers | None = None, files: Mapping[str, str] | None = None
) -> tuple[str, str]:
    """Verify the `SKILL.sigstore.json` of a skill; returns the identity and who vouches for it.

    Args:
        tree: The skill's files, wherever they are.
        signers: Whose signatures count; the user's own list when None.
        files: `Seal.files` of the tree, where they are known; else the tree is read.

    Raises:
        Changed: the bundle is damaged, or the files are not those that were signed.
        Refused: there is no bundle, or its maker is not on the list.
        SettingsError: the user's own trust root cannot be read.
        MissingExtra: the extra `sigstore` is not installed.
    """
    signers = user_signers() if signers is None else signers
    if not any(file.path == BUNDLE and file.mode != "link" for file in tree.files):
        raise Refused(
            say("The skill has no Sigstore bundle"), say("Ask whoever made it to sign it")
        )
    models = require("sigstore.models", "sigstore")
    verify = require("sigstore.verify", "sigstore")
    policy = require("sigstore.verify.policy", "sigstore")
    verifier = verify.Verifier(trusted_root=_trust_root(models, signers))
    try:
        bundle = models.Bundle.from_json(read_whole(tree, BUNDLE, _MAX_BUNDLE))
        text = statement(tree) if files is None else statement_of(signed_digest_of(files))
        verifier.verify_artifact(text, bundle, _Anybody())
    except SkillBroken as exc:
        raise _wrong(say("it is too large")) from exc
    except OSError:
        raise
    except Exception as exc:  # whatever a stranger's bundle sets off, the answer is no
        raise _wrong(_reason(exc)) from exc
    known = [one for one in list_signers(signers) if one.kind == "sigstore"]
    for one in known:
        if _is_by(bundle, policy.Identity(identity=one.identity, issuer=one.key)):
            return one.identity, one.key
    raise Refused(
        say("The skill was signed by `{name}`, who is not on your list", name=_subject(bundle)),
        say(
            "If you know them, run `satchel signers add IDENTITY --issuer URL`, otherwise do "
            "not trust it"
        ),
    )


def _trust_root(models: Any, signers: Signers) -> Any:
    """Read the user's own root, or the public one as the package brings it.

    Not `Verifier.production(offline=True)`: that keeps the root of the day it was first called in
    a cache, and an update of the package would not replace it.
    """
    own = signers.root
    if own and os.path.exists(own):
        try:
            return models.TrustedRoot.from_file(own)
        except Exception as exc:
            raise SettingsError(
                say("`{path}` cannot be read: {reason}", path=own, reason=_reason(exc)),
                say("Correct the file, or remove it"),
            ) from exc
    from importlib.resources import as_file, files

    store = files(require("sigstore._store", "sigstore"))
    with as_file(store / _PUBLIC / "trusted_root.json") as path:
        return models.TrustedRoot.from_file(str(path))


def _is_by(bundle: Any, wanted: Any) -> bool:
    errors = require("sigstore.errors", "sigstore")
    try:
        wanted.verify(bundle.signing_certificate)
    except errors.VerificationError:
        return False
    return True


def _subject(bundle: Any) -> str:
    """Whom the certificate names, for people."""
    x509 = require("cryptography.x509", "sigstore")
    try:
        names = bundle.signing_certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        ).value
    except x509.ExtensionNotFound:
        return "?"
    return ", ".join(str(getattr(name, "value", "?")) for name in names) or "?"


def _reason(exc: BaseException) -> str:
    """The first line of what a library says."""
    lines = str(exc).strip().splitlines()
    return lines[0][:200] if lines else type(exc).__name__


def _wrong(reason: str) -> Changed:
    return Changed(
        say("The Sigstore bundle does not fit the skill: {reason}", reason=reason),
        say("Get the skill again from whoever signed it"),
    )
