"""Which skills of a source are meant, and under which ids they are installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from satchel._language import listed, say
from satchel.errors import InvalidInput, NotFound
from satchel.skill.interpret import MAX_NAME, NAME, id_of, slug
from satchel.store.sources import find_skills

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from satchel.store.sources import Bundle, Found

_NAMED = 12


class Pick(NamedTuple):
    """One skill that will be imported."""

    id: str
    path: str
    """Its folder within the source."""
    notes: tuple[str, ...] = ()
    description: str = ""
    """As its file says; empty when that cannot be read."""


def choose(
    bundle: Bundle,
    *,
    path: str = "",
    skill_id: str = "",
    names: Sequence[str] = (),
    everything: bool = False,
    ids: Mapping[str, str] | None = None,
) -> list[Pick]:
    """Decide.

    Raises:
        NotFound: there is no skill, or none of a wanted name.
        InvalidInput: there are several, and nobody said which.
    """
    found = find_skills(bundle.tree, path or bundle.place.path, name=bundle.name)
    if not found:
        raise NotFound(
            say("There is no SKILL.md in `{source}`", source=bundle.place.url),
            say("A skill is a folder with a SKILL.md or a skill.yaml; give it with `--path`"),
        )
    if ids is not None:
        return _chosen(found, ids)
    if names:
        found = _named(found, names)
    elif len(found) > 1 and not everything:
        raise InvalidInput(
            say("There are {count} skills in it: {names}", count=len(found), names=_ids_of(found)),
            say("Choose with `--skill NAME`, or take them all with `--all`"),
        )
    if skill_id and len(found) > 1:
        raise InvalidInput(
            say("One id cannot serve {count} skills", count=len(found)),
            say("Leave `--id` out, or choose one skill with `--skill NAME`"),
        )
    return with_ids(found, skill_id)


def _chosen(found: Sequence[Found], ids: Mapping[str, str]) -> list[Pick]:
    """The skills of some folders, each under the id that somebody gave it."""
    picks: list[Pick] = []
    taken: set[str] = set()
    for item in found:
        if item.path not in ids:
            continue
        wanted = ids[item.path] or item.id
        check_new_id(wanted)
        if wanted in taken:
            raise InvalidInput(
                say("Two skills cannot have one id, `{name}`", name=wanted),
                say("Give one of them another"),
            )
        taken.add(wanted)
        picks.append(Pick(wanted, item.path, description=item.description))
    if not picks:
        raise InvalidInput(say("No skill was chosen"), say("Choose at least one"))
    return picks


def _named(found: Sequence[Found], names: Sequence[str]) -> list[Found]:
    chosen: list[Found] = []
    for name in names:
        matching = [item for item in found if name in (item.id, item.name, item.path)]
        if not matching:
            near = close_names(name, (item.id for item in found))
            raise NotFound(
                say("There is no skill `{name}` in it", name=name),
                say("Did you mean {names}?", names=listed(near))
                if near
                else say("It has {names}", names=_ids_of(found)),
            )
        if len(matching) > 1:
            raise InvalidInput(
                say("`{name}` is there {count} times", name=name, count=len(matching)),
                say(
                    "Give its folder with `--path`: {paths}",
                    paths=listed(f"`{item.path}`" for item in matching[:_NAMED]),
                ),
            )
        chosen += matching
    return chosen


def _ids_of(found: Sequence[Found]) -> str:
    """The ids of the first skills, and how many more there are."""
    shown = listed(f"`{item.id}`" for item in found[:_NAMED])
    more = len(found) - _NAMED
    return say("{names} and {count} more", names=shown, count=more) if more > 0 else shown


def close_names(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known names that `name` may be a slip of, in backticks."""
    import difflib

    return [f"`{one}`" for one in difflib.get_close_matches(name, list(known), n=3)]


def with_ids(found: Sequence[Found], given: str = "") -> list[Pick]:
    """An id for each: given, or the folder's name, or with the folder above when that is taken."""
    taken: set[str] = set()
    picks: list[Pick] = []
    for item in found:
        wanted = given or item.id
        notes: list[str] = []
        folder = item.path.rpartition("/")[2]
        if folder and not given and wanted != folder:
            notes.append(say("`{name}` is installed as `{id}`", name=folder, id=wanted))
        skill_id, parts = wanted, item.path.split("/")[:-1]
        while skill_id in taken and parts:
            skill_id = slug(f"{parts.pop()}-{wanted}")
        number = 2
        while skill_id in taken:
            skill_id, number = slug(f"{wanted[:58]}-{number}"), number + 1
        if skill_id != wanted:
            notes.append(
                say("`{name}` was taken; `{path}` is installed as `{id}`",
                    name=wanted, path=item.path, id=skill_id)
            )  # fmt: skip
        taken.add(skill_id)
        picks.append(Pick(skill_id, item.path, tuple(notes), item.description))
    return picks


def check_new_id(skill_id: str) -> None:
    """Refuse an id that no skill can have.

    Raises:
        InvalidInput: it is none.
    """
    if not NAME.fullmatch(skill_id) or len(skill_id) > MAX_NAME:
        raise InvalidInput(
            say("`{name}` cannot be an id: use a-z, 0-9 and single hyphens", name=skill_id),
            say("Try `{name}`", name=slug(skill_id)),
        )


def scaffold(name: str, description: str, body: str, skill_id: str) -> tuple[str, bytes]:
    """The id and the SKILL.md of a new, minimal skill; see `Store.plan_add`."""
    import json

    name = name.strip()
    if not name:
        raise InvalidInput(say("A skill needs a name"), say("Run `satchel add release-notes`"))
    if skill_id:
        check_new_id(skill_id)
    skill_id = skill_id or id_of(name)
    if not skill_id:
        raise InvalidInput(
            say("`{name}` has no letter from a to z and no digit, which names are made of",
                name=name),
            say("Give it an id too: `satchel add {name} --id word-count`", name=name),
        )  # fmt: skip
    title = name if name != skill_id else skill_id.replace("-", " ").capitalize()
    about = description.strip() or (
        "To be written. Say what this skill does and when to use it, in one or two sentences."
    )
    # JSON's text in quotes is YAML's too, whatever is in it.
    about = json.dumps(" ".join(about.split()), ensure_ascii=False)
    steps = body.strip() or (
        "To be written: the steps to take, in order, and how to know that the work is done.\n\n"
        "What the user gave: $ARGUMENTS"
    )
    text = f"---\nname: {skill_id}\ndescription: {about}\n---\n# {title}\n\n{steps}\n"
    return skill_id, text.encode()
