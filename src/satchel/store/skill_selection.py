"""Selects the skills of a source that are installed, with those that they require."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from satchel.errors import InvalidInput, NotFound
from satchel.i18n import did_you_mean, join_names, say, similar_names
from satchel.store.archive.rules import shown
from satchel.store.skill_names import RequiredSkill, assign_ids
from satchel.store.sources import find_skills, read_plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from satchel.store.skill_names import SelectedSkill
    from satchel.store.sources import Bundle, FoundSkill
    from satchel.store.sources.found_skills import PluginManifest

_MAX_NAMES_SHOWN = 12


def select_skills(
    bundle: Bundle,
    *,
    path: str = "",
    skill_id: str = "",
    names: Sequence[str] = (),
    everything: bool = False,
    has_skill: Callable[[str], bool] = lambda _: False,
) -> list[SelectedSkill]:
    """Select skills of a source, and their ids; skills that they require follow them.

    Args:
        bundle: The source.
        path: The folder within the source.
        skill_id: The id to install under; only for a single skill.
        names: The names of the skills to select, or of plugins of a marketplace.
        everything: Select all.
        has_skill: Whether a skill of a name is here already, so that it is not installed for
            another that requires it.

    Raises:
        NotFound: there is no skill, or none of a given name.
        InvalidInput: there are several, and none was selected.
    """
    start = path or bundle.place.path
    manifest = read_plugins(bundle.tree, start)
    candidates = manifest.group(find_skills(bundle.tree, start, name=bundle.name))
    if not candidates:
        url = bundle.place.url  # of a local source relative to the lockfile, so its name is shown
        location = url if "://" in url else url.rstrip("/").rpartition("/")[2]
        raise NotFound(
            say("There is no SKILL.md in `{path}`", path=location),
            say("Give the folder of a skill"),
        )
    selected = _select_by_name(candidates, names, manifest) if names else candidates
    if len(selected) > 1:
        _check_selection(selected, manifest, is_chosen=bool(names or everything), skill_id=skill_id)
    if start and any(skill.requires for skill in selected):
        candidates = find_skills(bundle.tree, name=bundle.name)
    skills = assign_ids(selected, skill_id, _required_by(selected, candidates, has_skill))
    if manifest.problem:
        skills = [skill._replace(notes=(*skill.notes, manifest.problem)) for skill in skills]
    return skills


def _check_selection(
    selected: Sequence[FoundSkill], manifest: PluginManifest, *, is_chosen: bool, skill_id: str
) -> None:
    """Refuse several skills that were not chosen, or that would all get one id."""
    if not is_chosen and manifest.plugins:
        raise _plugins_error(selected, manifest)
    if not is_chosen:
        hint = say("Choose with `--skill NAME`, or take them all with `--all`")
        raise _several_skills_error(selected, hint)
    if skill_id:
        hint = say("An id is for a single skill: choose one, or give none")
        raise _several_skills_error(selected, hint)


def _required_by(
    selected: Sequence[FoundSkill],
    candidates: Sequence[FoundSkill],
    has_skill: Callable[[str], bool],
) -> list[RequiredSkill]:
    """The skills that the chosen ones require and that are not here, each once.

    Those that they require themselves are included, also in a circle.
    """
    known_names = {key for skill in selected for key in (skill.id, skill.name)}
    required: list[RequiredSkill] = []
    pending = deque((skill, name) for skill in selected for name in skill.requires)
    while pending:
        skill, name = pending.popleft()
        if name in known_names or has_skill(name):
            continue
        known_names.add(name)
        matching = [candidate for candidate in candidates if name in (candidate.id, candidate.name)]
        match = matching[0] if len(matching) == 1 else None
        required.append(RequiredSkill(skill, name, match, len(matching)))
        if match is not None:
            known_names.update((match.id, match.name))
            pending.extend((match, further_name) for further_name in match.requires)
    return required


def _select_by_name(
    skills: Sequence[FoundSkill], names: Sequence[str], manifest: PluginManifest
) -> list[FoundSkill]:
    """The skills of some names; a name that no skill has may be that of a plugin."""
    selected: list[FoundSkill] = []
    for name in names:
        matching = [skill for skill in skills if name in (skill.id, skill.name, skill.path)]
        of_plugin = [skill for skill in skills if name in skill.plugins]
        if not matching and of_plugin:
            selected += [skill for skill in of_plugin if skill not in selected]
            continue
        if not matching:
            _refuse_plugin_elsewhere(name, manifest)
            similar = similar_names(name, (skill.id for skill in skills), 3)
            raise NotFound(
                say("There is no skill `{name}`", name=name),
                did_you_mean(similar) or say("It has {names}", names=_ids_of(skills)),
            )
        if len(matching) > 1:
            raise InvalidInput(
                say("`{key}` is there twice", key=name),
                say(
                    "Give its folder with `--path`: {paths}",
                    paths=join_names(f"`{skill.path}`" for skill in matching[:_MAX_NAMES_SHOWN]),
                ),
            )
        selected += matching
    return selected


def _refuse_plugin_elsewhere(name: str, manifest: PluginManifest) -> None:
    for plugin in manifest.plugins:
        if plugin.name == name and plugin.elsewhere:
            raise NotFound(
                say("The plugin `{name}` is not in this source", name=name),
                say("Run `{command}`", command=f"satchel install {plugin.elsewhere}"),
            )


def _plugins_error(selected: Sequence[FoundSkill], manifest: PluginManifest) -> InvalidInput:
    """The error for a source with plugins, of which none was selected."""
    rows = [
        (plugin, [skill for skill in selected if plugin.name in skill.plugins])
        for plugin in manifest.plugins
    ]
    texts = [
        say("`{name}` from {url}", name=shown(plugin.name), url=plugin.elsewhere)
        if plugin.elsewhere
        else f"`{shown(plugin.name)}` ({_ids_of(skills)})"
        for plugin, skills in rows[:_MAX_NAMES_SHOWN]
    ]
    if hidden_count := len(rows) - len(texts):
        texts.append(say("and {count} more", count=hidden_count))
    if others := [skill for skill in selected if not skill.plugins]:
        texts.append(say("in no plugin: {names}", names=_ids_of(others)))
    message = say("It is the plugin {plugins}", plugins=join_names(texts))
    if manifest.is_marketplace:
        message = say(
            "It is a marketplace with {count} plugins: {plugins}",
            count=len(rows), plugins=join_names(texts),
        )  # fmt: skip
    hint = say("Choose a plugin or a skill with `--skill NAME`, or take them all with `--all`")
    return InvalidInput(message, hint)


def _several_skills_error(selected: Sequence[FoundSkill], hint: str) -> InvalidInput:
    message = say(
        "There are {count} skills in it: {names}", count=len(selected), names=_ids_of(selected)
    )
    return InvalidInput(message, hint)


def _ids_of(skills: Sequence[FoundSkill]) -> str:
    names = join_names(f"`{skill.id}`" for skill in skills[:_MAX_NAMES_SHOWN])
    hidden_count = len(skills) - _MAX_NAMES_SHOWN
    if hidden_count <= 0:
        return names
    return say("{names} and {count} more", names=names, count=hidden_count)
