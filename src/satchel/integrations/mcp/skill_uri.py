"""URIs of the files of skills, as the MCP server hands them out.

skill://pdf/SKILL.md              the skill `pdf`
skill://pdf/references/forms.md   a file of it
skill://pdf/templates             a folder of it
"""

from __future__ import annotations

from urllib.parse import quote, unquote

SCHEME = "skill://"
_MAX_URI_CHARS = 4_096


def make_uri(*paths: str) -> str:
    """Return the URI of a path: a skill's name, then the path of a file below its folder."""
    return SCHEME + quote("/".join(path for path in paths if path), safe="/")


def split_uri(uri: str) -> tuple[str, ...]:
    """Return the decoded path segments of a URI; an empty tuple when it is not valid.

    URIs with `..`, empty segments, encoded separators or a query are never valid.
    """
    if len(uri) > _MAX_URI_CHARS or uri[: len(SCHEME)].lower() != SCHEME:
        return ()
    segments: list[str] = []
    for encoded in uri[len(SCHEME) :].split("/"):
        if "?" in encoded or "#" in encoded:
            return ()
        try:
            segment = unquote(encoded, errors="strict")
        except UnicodeDecodeError:
            return ()
        if segment in {"", ".", ".."} or not segment.isprintable():
            return ()
        if "/" in segment or "\\" in segment:
            return ()
        segments.append(segment)
    return tuple(segments)


def normalise_uri(uri: str) -> str:
    """Return a URI without a trailing `/`, `./` and `//`."""
    segments = [segment for segment in uri[len(SCHEME) :].split("/") if segment not in {"", "."}]
    return SCHEME + "/".join(segments)
