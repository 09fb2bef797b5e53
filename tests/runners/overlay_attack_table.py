"""The attacks that `overlay_attacks` makes: lines of Python for a program, and what must be seen."""

from __future__ import annotations

from typing import NamedTuple


class Attack(NamedTuple):
    """One attack: lines of Python for the program, and what must be seen."""

    name: str
    code: str
    expected: str
    """Parts of what is seen, separated by `;`."""
    before: str = ""
    """Lines of Python that prepare the workspace; the host runs them in it."""
    meanwhile: str = ""
    """Lines of Python that the host runs between the list of changes and applying."""
    root: bool = False
    """Whether only root can prepare it."""
    permitted: bool = False
    """Whether only what needs no consent is applied."""


PROGRAM = """
CONFIG = '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = "touch MARK; false"\\n'
def repo(place, head="HEAD", config="config", objects="objects", refs="refs"):
    write(f"{place}/{head}", "ref: refs/heads/x")
    write(f"{place}/{config}", CONFIG)
    write(f"{place}/{objects}/x")
    write(f"{place}/{refs}/x")
def writes(*paths):
    for path in paths:
        write(path)
def rename(one, other, flag):
    done = libc.renameat2(-100, one.encode(), -100, other.encode(), flag)
    said.append("done" if done >= 0 else os.strerror(ctypes.get_errno()))
def flags(path):
    import fcntl
    for flag in (16, 32, 64):  # immutable, append only, not dumped
        tried(fcntl.ioctl, os.open(path, os.O_RDONLY), 0x40086602, flag.to_bytes(8, "little"))
ACL = bytes.fromhex("0200000001000700ffffffff04000700ffffffff20000700ffffffff")
"""
GIT = "git would take its folder"
CONTROL = "version control runs commands"
OUT = "leads out of the workspace"
HIDDEN = "characters that are invisible"
SKILLS = "skills and their lockfiles"
PIPE = "named pipe or a socket"
DENIED = "ermi"
REPOSITORIES = (
    Attack("bare repository", "repo('x')", f"x: {GIT}"),
    Attack("bare repository as the workspace", "repo('.')", GIT),
    Attack("repository deep down", "repo('a/b/c/d/e/f/x')", f"a/b/c/d/e/f/x: {GIT}"),
    Attack("repository in node_modules", "repo('node_modules/m/.git')", CONTROL),
    Attack(".git folder", "repo('sub/.git')", f"sub/.git: {CONTROL}"),
    Attack(".git file", "repo('y'); write('sub/.git', 'gitdir: ../y')", f"{GIT};{CONTROL}"),
    Attack(
        "commondir", "write('x/HEAD', 'ref: refs/heads/x'); write('x/commondir', '../y'); "
        "write('x/config', CONFIG); writes('y/objects/x', 'y/refs/x')", f"x: {GIT}",
    ),
    Attack("submodule", "repo('.git/modules/m'); write('.gitmodules')", f"{CONTROL};consent: .gitmodules"),
    Attack("worktree", "repo('.git/worktrees/w')", CONTROL),
    Attack("case twin", "repo('sub/.GIT')", CONTROL),
    Attack("zero width twin", "repo('sub/.g\\u200cit')", HIDDEN),
    Attack("full width twin", "repo('sub/.\\uff47\\uff49\\uff54')", CONTROL),
    Attack("short name of Windows", "repo('sub/git~1')", CONTROL),
    Attack("trailing dot and space", "repo('sub/.git. ')", CONTROL),
    Attack("stream of Windows", "repo('sub/.git::$INDEX_ALLOCATION')", CONTROL),
    Attack("parts in case twins", "repo('x', 'head', 'CONFIG', 'Objects', 'REFS')", f"x: {GIT}"),
    Attack(
        "folders in case twins", "repo('X'); os.rename('X/HEAD', 'HEAD~'); os.mkdir('x'); "
        "os.rename('HEAD~', 'x/HEAD')", GIT,
    ),
    Attack(
        "half of it exists", "write('data/HEAD', 'ref: refs/heads/x'); write('data/config', CONFIG)",
        f"data: {GIT}", "write('data/objects/x'); write('data/refs/x')",
    ),
    Attack(
        "the other half exists", "writes('data/objects/x', 'data/refs/x')", f"data: {GIT}",
        "write('data/HEAD', 'ref: refs/heads/x'); write('data/config', CONFIG)",
    ),
    Attack(
        "by rename", "repo('x', 'a', 'b', 'c', 'd')\n"
        "for a, b in zip('abcd', ('HEAD', 'config', 'objects', 'refs')): os.rename(f'x/{a}', f'x/{b}')",
        f"x: {GIT}",
    ),
    Attack(
        "its parts are links", "repo('x'); shutil.move('x/objects', 'o'); shutil.move('x/refs', 'r'); "
        "os.symlink('../o', 'x/objects'); os.symlink('../r', 'x/refs')", f"x: {GIT}",
    ),
    Attack("its head is a link", "repo('x'); os.remove('x/HEAD'); os.symlink('refs/heads/x', 'x/HEAD')", GIT),
    Attack(
        "its parts are files", "repo('x'); shutil.rmtree('x/refs'); shutil.rmtree('x/objects'); "
        "write('x/refs', mode=0o777); write('x/objects', mode=0o777)", GIT,
    ),
    Attack("copy of the user's", "shutil.copytree('.git', 'copy'); write('copy/config', CONFIG)", f"copy: {GIT}"),
    Attack("renamed user's", "tried(os.rename, '.git', 'x'); shutil.move('.git', 'y')", f"y: {GIT};.git: {CONTROL}"),
    Attack(
        "bare repository of the user", "write('v/x.git/config', CONFIG); write('v/x.git/hooks/post-update')",
        f"v/x.git: {GIT}", "repo('v/x.git', config='c')",
    ),
    Attack(
        "separate folder of git", "write('store/config', CONFIG)", f"store: {GIT}",
        "shutil.rmtree('.git'); repo('store', config='c'); write('.git', 'gitdir: ./store')",
    ),
    Attack(
        "two proposals, each a half", "writes('x/objects/x', 'x/refs/x'); write('x/config', CONFIG)",
        "conflict x/", meanwhile="second(\"write('x/HEAD', 'ref: refs/heads/x')\")",
    ),
    Attack("one half after the other", "writes('x/objects/x', 'x/refs/x')", GIT,
           "second(\"write('x/HEAD', 'ref: refs/heads/x'); write('x/config', CONFIG)\")"),
    Attack("Mercurial, Subversion, Jujutsu", "writes('a/.hg/hgrc', 'b/.svn/x', 'c/.jj/x')",
           f"a/.hg: {CONTROL};b/.svn: {CONTROL};c/.jj: {CONTROL}"),
    Attack("twin with an ignored mark", "repo('sub/.git\\ufe0f'); repo('sub/.gi\\u034ft')", f"{CONTROL};{HIDDEN}"),
    Attack("repo of Android", "write('.repo/repo/main.py')", CONTROL),
    Attack("tables of references", "repo('x'); write('x/reftable/tables.list'); shutil.rmtree('x/refs'); "
           "write('x/refs/heads', 'this repository uses the reftable format')", f"x: {GIT}"),
    Attack("its head was a folder", "shutil.rmtree('x/HEAD'); repo('x')", f"x: {GIT}",
           "writes('x/HEAD/a', 'x/objects/x', 'x/refs/x')"),
    Attack("halves are moved", "shutil.move('store', 'x'); write('x/HEAD', 'ref: refs/heads/x'); write('x/config', CONFIG)",
           f"x: {GIT}", "writes('store/objects/x', 'store/refs/x')"),
    Attack("commondir outside", "repo('x', objects='o', refs='r'); write('x/commondir', 'OUTSIDE')", f"x: {GIT}"),
    Attack("alternates and attributes", "writes('.git/objects/info/alternates', '.git/info/attributes')", CONTROL),
    Attack(".git is a link", "repo('y'); os.symlink('../y', 'sub/.git')", f"sub/.git: {CONTROL};y: {GIT}"),
    Attack("exchanged with .git", "rename('old.txt', '.git/config', 2)", f"{CONTROL};applied old.txt"),
    Attack("deleted .git", "shutil.rmtree('.git')", f".git/HEAD: {CONTROL}|.git: {CONTROL}"),
    Attack("emptied .git", "shutil.rmtree('.git'); os.mkdir('.git')", f".git: {CONTROL}"),
)  # fmt: skip
LINKS = (
    Attack("link to a file of the system", "os.symlink('/etc/passwd', 'x')", f"x: the link {OUT}"),
    Attack("link upwards", "os.symlink('../outside', 'x')", OUT),
    Attack("link up and down", "os.symlink('sub/../../outside', 'x')", OUT),
    Attack("chain of links", "os.symlink('sub', 'x'); os.symlink('../..', 'sub/y')", f"sub/y: the link {OUT}"),
    Attack("link to .git", "os.symlink('.git', 'x')", "link leads to a protected path"),
    Attack("link to a skill", "os.symlink('../skills/own', 'sub/x')", "link leads to a protected path"),
    Attack("link to steering files", "os.symlink('.vscode/tasks.json', 'x')", "link leads to a protected path"),
    Attack("folder becomes a link", "shutil.rmtree('sub'); os.symlink('../outside', 'sub')", f"sub: the link {OUT}"),
    Attack("file becomes a link", "os.remove('old.txt'); os.symlink('../outside/secret.txt', 'old.txt')", OUT),
    Attack("target that tricks the display", "os.symlink('a\\u202eb\\nc', 'x')", "protected path"),
    Attack("long target", "os.symlink('a/' * 1500, 'x')", "protected path"),
    Attack("loop", "os.symlink('x', 'x')", "applied x -> x"),
    Attack("through a link of the user", "tried(write, 'x/new')", "No such file|Permission denied|File exists",
           "os.symlink('../outside', 'x')"),
    Attack("a link of the user is replaced", "os.remove('x'); write('x/new')", "applied x/new",
           "os.symlink('../outside', 'x')"),
    Attack("hard link to outside", "tried(os.link, 'OUTSIDE/secret.txt', 'x')", "No such file|ermi|cross-device"),
    Attack("hard link to the system", "tried(os.link, '/usr/bin/env', 'x')", "ermi|cross-device"),
    Attack("hard link to .git", "os.link('.git/config', 'x'); write('x', CONFIG)", f"{CONTROL};applied x"),
    Attack("hard link of the user to outside", "write('x', 'mine')", "applied x",
           "os.link('../outside/secret.txt', 'x')"),
    Attack("hard link of the user to .git", "write('x', CONFIG)", "applied x", "os.link('.git/config', 'x')"),
    Attack("CLAUDE.md is a link to another file", "write('notes/agents.txt', 'evil')", "consent: notes/agents.txt",
           "write('notes/agents.txt'); os.symlink('notes/agents.txt', 'CLAUDE.md')"),
    Attack("hook is a link", "write('tools/check', 'evil')", "consent: tools/check",
           "write('tools/check'); os.mkdir('.git/hooks'); os.symlink('../../tools/check', '.git/hooks/pre-commit')"),
    Attack("command deep down is a link", "write('notes/x', 'evil')", "consent: notes/x",
           "write('notes/x'); os.makedirs('.claude/a/b'); os.symlink('../../../notes/x', '.claude/a/b/x.md')"),
    Attack("link of the user led elsewhere", "os.remove('x'); os.symlink('../outside', 'x')", OUT, "os.symlink('sub', 'x')"),
    Attack("link led elsewhere by the next program", "shutil.rmtree('sub/deep'); os.symlink('../..', 'sub/deep')", OUT,
           "second(\"os.symlink('sub/deep', 'x')\")"),
    Attack("settings are a link", "write('x', '[tool.satchel]'); os.symlink('x', 'pyproject.toml')", "it decides what Satchel"),
    Attack("links to .git in other words", "[os.symlink(to, f'x{n}') for n, to in enumerate(('.git/', './.git', '.GIT/x'))]",
           "x0: the link leads;x1: the link leads;x2: the link leads"),
    Attack("links of the kernel", "os.symlink('/proc/self/cwd/../outside', 'x'); os.symlink('/proc/self/fd/3', 'y')",
           f"x: the link {OUT};y: the link {OUT}"),
    Attack("links to secrets and stages", "os.symlink('.env', 'x'); os.symlink('.satchel-change-0/0', 'y')",
           "x: the link leads to a prot;y: the link leads to a prot", "write('.env')"),
    Attack(".vscode is a link to another folder", "write('editor/tasks.json')", "consent: editor/tasks.json",
           "write('editor/x'); os.symlink('editor', '.vscode')"),
)  # fmt: skip
ENTRIES = (
    Attack("whiteout by hand", "tried(os.mknod, 'x', 0o020600, 0)", DENIED),
    Attack("device", "tried(os.mknod, 'x', 0o060600, os.makedev(8, 0))", DENIED),
    Attack("opaque by hand", "tried(os.setxattr, 'sub', 'user.overlay.opaque', b'y')", "seen nothing"),
    Attack("redirect by hand", "os.makedirs('r'); tried(os.setxattr, 'r', 'user.overlay.redirect', b'/.git'); "
           "write('r/x')", "applied r/x"),
    Attack("metacopy by hand", "write('m'); tried(os.setxattr, 'm', 'user.overlay.metacopy', b'')", "applied m"),
    Attack("attributes of the user's folder", "write('sub/new')", "applied sub/new",
           "os.setxattr('sub', 'user.overlay.opaque', b'y'); os.setxattr('sub', 'user.overlay.redirect', b'/.git')"),
    Attack("capabilities of a file", "write('x'); tried(os.setxattr, 'x', 'security.capability', b'\\1' * 20)",
           "ermi|Invalid;applied x"),
    Attack("protected folder is emptied", "shutil.rmtree('skills'); os.mkdir('skills')", f"skills/own: {SKILLS}"),
    Attack("protected folder becomes a file", "shutil.rmtree('skills'); write('skills')", SKILLS),
    Attack("protected folder becomes a link", "shutil.rmtree('skills'); os.symlink('sub', 'skills')", SKILLS),
    Attack("protected folder in a case twin", "write('Skills/OWN/SKILL.md')", SKILLS),
    Attack("folder of applying", "write('.satchel-change-0/0')", "it decides what Satchel trusts"),
    Attack("settings of Satchel", "writes('satchel.toml', '.satchel/x', 'sub/satchel.lock')",
           "satchel.toml: it decides;.satchel: it decides;sub/satchel.lock: it decides"),
    Attack("settings in pyproject.toml", "write('pyproject.toml', '[tool.satchel]\\nsandbox = \"off\"')",
           "it decides what Satchel trusts"),
    Attack("escaped settings", "write('pyproject.toml', '[tool.\"s\\\\u0061tchel\"]\\nsandbox = \"off\"')",
           "it decides what Satchel trusts"),
    Attack("named pipe", "os.mkfifo('x')", f"x: it is a {PIPE}|{DENIED}"),
    Attack("socket", "tried(lambda: socket.socket(socket.AF_UNIX).bind('x'))", f"x: it is a {PIPE}|{DENIED}"),
    Attack("a pipe in place of a file", "os.remove('old.txt'); os.mkfifo('old.txt')", PIPE),
    Attack("the user's pipe", "tried(lambda: os.write(os.open('p', os.O_WRONLY | os.O_NONBLOCK), b'x'))",
           "No such device", "os.mkfifo('p'); held.append(os.open('p', os.O_RDONLY | os.O_NONBLOCK))"),
    Attack("the user's socket", "tried(lambda: socket.socket(socket.AF_UNIX).connect('s'))", "refused|ermi|not supported",
           "s = socket.socket(socket.AF_UNIX); s.bind('s'); s.listen(); held.append(s)"),
    Attack("the user's pipe is deleted", "os.remove('p')", "p: it is neither a file nor a link", "os.mkfifo('p')"),
    Attack("sparse file of 10 GB", "tried(os.truncate, os.open('x', os.O_CREAT | os.O_WRONLY), 10 << 30)",
           "too large|fault"),
    Attack("sparse files of 1 GB together", "for n in range(60):\n    write(f'x{n}'); os.truncate(f'x{n}', 19 << 20)",
           "fault written"),
    Attack("growing of a huge file", "tried(lambda: open('huge', 'ab').write(b'x'))", "too large|fault written",
           "write('huge'); os.truncate('huge', 600 << 20)"),
    Attack("deep path", "write('d/' * 140 + 'x')", "fault written"),
    Attack("long path", "write('/'.join(['d' * 200] * 8))", "its path is too long"),
    Attack("line break in a name", "write('a\\nb')", HIDDEN),
    Attack("colours in a name", "write('a\\x1b[31mb')", HIDDEN),
    Attack("reversed name", "write('a\\u202etxt.py')", HIDDEN),
    Attack("invisible name", "write('\\u2060')", HIDDEN),
    Attack("name that is no text", "write(b'a\\xff')", HIDDEN),
    Attack("name of 255 bytes", "write('n' * 255)", "applied " + "n" * 255),
    Attack("lookalike of pyproject.toml", "write('p\\uff59project.toml')", "only to the eye"),
    Attack("case twin of a file", "write('OLD.TXT')", "applied OLD.TXT"),
    Attack("set user id", "write('x', mode=0o755); tried(os.chmod, 'x', 0o6755)", "applied x"),
    Attack("writable by all", "write('d/x'); os.chmod('d/x', 0o666); os.chmod('d', 0o777)", "applied d/x"),
    Attack("becomes executable", "os.chmod('old.txt', 0o755)", "applied old.txt executable|seen nothing"),
    Attack("is executable no more", "os.chmod('run.sh', 0o644)", "applied run.sh|seen nothing"),
    Attack("folder without rights", "write('d/x'); os.chmod('d', 0)", "applied d/x"),
    Attack("folder that may be listed only", "write('d/e/x'); os.chmod('d/e/x', 0); os.chmod('d/e', 0o400); "
           "os.chmod('d', 0o400)", "applied d/e/x"),
    Attack("file, folder, file", "os.remove('old.txt'); write('old.txt/x'); shutil.rmtree('old.txt'); "
           "write('old.txt', 'new')", "applied old.txt"),
    Attack("folder, file, folder", "shutil.rmtree('sub'); write('sub'); os.remove('sub'); write('sub/inner.txt', 'new')",
           "applied sub/inner.txt;applied sub/deep/far.txt"),
    Attack("half of a move", "os.rename('old.txt', b'old\\xff.txt')", f"{HIDDEN};kept old.txt", permitted=True),
    Attack("half of another move", "os.rename('old.txt', 'conftest.py')", "consent: conftest.py;kept old.txt",
           permitted=True),
    Attack("no move: another content of this size", "os.remove('old.txt'); writes('.git/x', '.envrc'); write('conftest.py', 'OLD.TXT\\n')",
           f"{CONTROL};applied old.txt", permitted=True),
    Attack("invisible names", "write('\\u3164'); write('a\\u00a0b'); write('a\\u180e')",
           f"\u3164: its name has {HIDDEN};a\u00a0b: its;a\u180e: its"),
    Attack("twins of files that steer", "write('conftest\\ufe0f.py'); write('.\\u212airo/x'); write('AGENT\\u017f.md')",
           "consent: conftest;consent: .\u212airo/x;consent: AGENT"),
    Attack("names for shells", "writes('-rf', '$(touch MARK)', '`touch MARK`', '..\\\\x')", "applied -rf"),
    Attack("normal form twin", "write('cafe\\u0301', 'its')", "applied cafe", "write('caf\\u00e9', 'mine')"),
    Attack("key of many parts", "write('pyproject.toml', 'satchel' + '.a' * 200_000 + ' = 1')", "it decides what Satchel"),
    Attack("quoted key of many parts", "write('pyproject.toml', '\\'satchel\\'' + '.\"a b\"' * 60_000 + ' = 1')",
           "it decides what Satchel"),
    Attack("whiteout by rename", "rename('old.txt', 'x', 4)", "ermi|Invalid;seen nothing"),
    Attack("nameless file", "f = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o6777); os.write(f, b'x'); "
           "libc.linkat(-100, f'/proc/self/fd/{f}'.encode(), -100, b'x', 0x400)", "applied x|seen nothing"),
    Attack("the upper folder", "[tried(os.listdir, p) for p in ('OUTSIDE', '/proc/self/root/OUTSIDE', '/proc/1/root/OUTSIDE')]",
           "No such|ermi"),
    Attack("flags of files", "write('d/x'); [flags(path) for path in ('d/x', 'd', 'old.txt', 'sub')]", "applied d/x;ermi"),
    Attack("set group id of a folder", "write('d/x'); tried(os.chmod, 'd', 0o7777); tried(os.chmod, 'sub', 0o7777)", "applied d/x"),
    Attack("default access list", "os.mkdir('d'); [tried(os.setxattr, p, 'system.posix_acl_default', ACL) for p in ('d', 'sub')]; "
           "writes('d/x', 'sub/x')", "applied d/x;applied sub/x"),
    Attack("owner", "write('x'); tried(os.chown, 'x', 0, 0); tried(os.chown, 'old.txt', 0, 0)", "applied x"),
    Attack("300 names of one file", "write('x'); [os.link('x', f'h{n}') for n in range(300)]", "applied h299"),
    Attack("pipes at places that steer", "os.mkfifo('conftest.py'); os.mkfifo('.vscode')", f"{PIPE}|{DENIED}"),
    Attack("access list", "open('old.txt', 'a').write('x')", "applied old.txt",
           "os.setxattr('old.txt', 'system.posix_acl_access', bytes.fromhex('02000000'\n"
           "'01000600ffffffff' '0200060092100000' '04000000ffffffff' '10000600ffffffff' '20000000ffffffff'))"),
)  # fmt: skip
RACES = (
    Attack("the user edits", "write('old.txt', 'its')", "conflict old.txt", "", "write('old.txt', 'mine')"),
    Attack("the user edits and keeps size and time", "write('old.txt', 'its')", "conflict old.txt", "",
           "i = os.stat('old.txt'); write('old.txt', 'OLD.TXT\\n'); os.utime('old.txt', ns=(i.st_atime_ns, i.st_mtime_ns))"),
    Attack("the user deletes", "write('old.txt', 'its')", "conflict old.txt", "", "os.remove('old.txt')"),
    Attack("the user creates", "write('x', 'its')", "conflict x", "", "write('x', 'mine')"),
    Attack("a folder becomes a link", "write('sub/inner.txt', 'its')", "conflict sub/inner.txt", "",
           "os.rename('sub', 'was'); os.symlink('../outside', 'sub')"),
    Attack("a folder becomes a link, for a new file", "write('sub/x', 'its')", "conflict sub/x", "",
           "os.rename('sub', 'was'); os.symlink('../outside', 'sub')"),
    Attack("a folder becomes a link, for a deletion", "os.remove('sub/inner.txt')", "conflict sub/inner.txt", "",
           "os.rename('sub', 'was'); os.symlink('../outside', 'sub'); write('../outside/inner.txt')"),
    Attack("a new folder becomes a link", "write('n/x', 'its')", "conflict n/x", "", "os.symlink('../outside', 'n')"),
    Attack("a file becomes a link", "write('old.txt', 'its')", "conflict old.txt", "",
           "os.remove('old.txt'); os.symlink('../outside/secret.txt', 'old.txt')"),
    Attack("a file becomes a folder", "write('old.txt', 'its')", "conflict old.txt", "",
           "os.remove('old.txt'); write('old.txt/x')"),
    Attack("the workspace becomes a link", "write('x')", "conflict|trouble Not a directory", "",
           "os.rename('../ws', '../was'); os.symlink('outside', '../ws')"),
    Attack("the workspace becomes another", "write('x')", "conflict", "", "os.rename('../ws', '../was'); os.mkdir('../ws')"),
    Attack("a second program", "write('old.txt', 'its')", "conflict old.txt", "", "second(\"write('old.txt', 'second')\")"),
    Attack("the user adds to a deleted folder", "shutil.rmtree('sub')", "applied sub/inner.txt", "", "write('sub/mine')"),
    Attack("the user links to outside", "write('old.txt', 'its')", "conflict old.txt", "",
           "os.remove('old.txt'); os.link('../outside/secret.txt', 'old.txt')"),
    Attack("the user makes a repository", "write('x/f', 'its')", "conflict x/f", "", "repo('x', config='c')"),
    Attack("the user closes the file", "write('old.txt', 'its')", "conflict old.txt", "", "os.chmod('old.txt', 0o444)"),
    Attack("the user copies the folder", "write('sub/inner.txt', 'its')", "conflict sub/inner.txt", "",
           "os.rename('sub', 'was'); shutil.copytree('was', 'sub')"),
    Attack("the same file in another folder", "write('sub/inner.txt', 'its')", "conflict sub/inner.txt", "",
           "os.rename('sub', 'was'); os.mkdir('sub'); os.link('was/inner.txt', 'sub/inner.txt')"),
    Attack("a file becomes a pipe", "write('old.txt', 'its')", "conflict old.txt", "", "os.remove('old.txt'); os.mkfifo('old.txt')"),
    Attack("a file becomes endless", "write('old.txt', 'its')", "conflict old.txt", "",
           "os.remove('old.txt'); os.symlink('/dev/zero', 'old.txt')"),
    Attack("a file becomes huge", "write('old.txt', 'its')", "conflict old.txt", "", "os.truncate('old.txt', 10 << 30)"),
    Attack("a folder is closed", "write('sub/x')", "trouble Permission|applied sub/x", "", "os.chmod('sub', 0o500)"),
    Attack("a second program puts a link", "write('n/x', 'its')", "conflict n/x", "", "second(\"os.symlink('sub', 'n')\")"),
    Attack("a second program puts a file", "write('sub/x', 'its')", "conflict sub/x", "",
           "second(\"shutil.rmtree('sub'); write('sub')\")"),
    Attack("a chain of processes", "if not os.fork():\n    os.setsid()\n    for n in range(3000):\n"
           "        open('x', 'a').write('x')\n        if os.fork(): os._exit(0)\n    os._exit(0)\ntime.sleep(0.2)", "applied x"),
    Attack("a process writes to memory", "import mmap\nwrite('x', 'a' * 4096)\nif not os.fork():\n    os.setsid()\n"
           "    m = mmap.mmap(os.open('x', os.O_RDWR), 4096)\n    while True: m[0] ^= 1\ntime.sleep(0.1)", "applied x"),
    Attack("a process that stays", "if not os.fork():\n    os.setsid()\n    if not os.fork():\n"
           "        [(open('x', 'a').write('x'), time.sleep(0.02)) for _ in range(200)]\n"
           "        os._exit(0)\n    os._exit(0)\ntime.sleep(0.1)", "applied x"),
)  # fmt: skip
MOUNT = "subprocess.run(['mount', '-t', 'tmpfs', 'none', {!r}], check=True); "
PLACES = (
    Attack("reading secrets of the project",
           "said += [repr(open('.env').read() + open('sub/.env.local').read())]; tried(write, '.env')",
           "'';Read-only", "write('.env'); write('sub/.env.local')"),
    Attack("the workspace is a link", "write('x')", "applied x",
           "os.rename('../ws', '../real'); os.symlink('real', '../ws')"),
    Attack("the workspace may not be written", "write('x')", "trouble Permission|applied x",
           "os.chmod('.', 0o555)"),
    Attack("the workspace is in another one", "write('x'); tried(open, '../../old.txt')", "applied x;No such|ermi",
           "shutil.copytree('.', '../outer', symlinks=True); shutil.rmtree('../ws'); os.makedirs('../outer/a/ws'); "
           "os.symlink('outer/a/ws', '../ws')"),
    Attack("the workspace is in memory", "write('x'); os.makedirs('n'); write('n/y')", "applied x|fault cannot-start",
           "shutil.rmtree('../ws'); os.makedirs(SHM); os.symlink(SHM, '../ws')"),
    Attack("the workspace is a mount", "write('x')", "applied x", MOUNT.format("../ws"), root=True),
    Attack("the workspace is mounted read-only", "write('x')", "trouble Read-only",
           MOUNT.format("../ws") + "subprocess.run(['mount', '-o', 'remount,ro', '../ws'], check=True)", root=True),
    Attack("the workspace is mounted meanwhile", "write('x')", "conflict", "", MOUNT.format("../ws"), root=True),
    Attack("a folder is mounted meanwhile", "write('sub/x')", "trouble|conflict", "", MOUNT.format("sub"), root=True),
    Attack("the disk is full", "write('x', 'x' * (3 << 20)); os.remove('gone.txt'); write('old.txt', 'new')", "trouble No space",
           "subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=1m', 'none', '../ws'], check=True); os.chdir('../ws'); "
           "writes('gone.txt', 'old.txt')", root=True),
    Attack("options in the name of the workspace", "write('x'); os.remove('old.txt')", "applied x;applied old.txt",
           "n = 'w,upperdir=b:c\\\\d e\\n'; os.rename('../ws', f'../{n}'); os.symlink(n, '../ws')"),
    Attack("the workspace contains a mount", "write('x')", "without mounts", MOUNT.format("sub"), root=True),
)  # fmt: skip
STEERING = (
    "AGENTS.md", "sub/CLAUDE.md", "GEMINI.md", ".claude/settings.json", ".mcp.json", ".codex/config.toml",
    ".cursor/rules/x.mdc", ".github/copilot-instructions.md", ".agents/x/SKILL.md", ".opencode/x",
    ".vscode/tasks.json", ".idea/x.xml", ".zed/tasks.json", ".helix/languages.toml", ".nvim.lua", ".exrc",
    ".dir-locals.el", "x.code-workspace", ".devcontainer/devcontainer.json", ".gitpod.yml", ".replit",
    ".envrc", ".env", ".env.local", ".bashrc", ".zshrc", "sub/.profile", ".tool-versions", "mise.toml",
    "conftest.py", "sub/sitecustomize.py", "usercustomize.py", "x.pth", ".pdbrc", "pyvenv.cfg",
    ".gitattributes", ".gitmodules", ".gitconfig", ".lfsconfig", ".pre-commit-config.yaml", ".husky/pre-commit",
    ".githooks/pre-push", "tools/hooks/post-checkout", "hooks/pre-commit", ".npmrc", ".yarnrc.yml",
    ".gitlab-ci.yml", ".github/workflows/x.yml", "Claude.MD", ".VSCode/tasks.json", ".kilocode/rules/x.md",
    ".roomodes", ".aiassistant/rules/x.md", ".pylintrc", ".rspec", ".flake8", "eslint.config.mjs", ".lintstagedrc.json",
    "sitecustomize/__init__.py", "usercustomize.so", "sub/__pycache__/x.pyc", ".venv/bin/python", "node_modules/.bin/eslint",
    "lib/site-packages/six.py", "pnpm-workspace.yaml", "rust-toolchain.toml", ".bsp/x.json", "mise.production.toml",
    ".emacs.d/init.el", ".htaccess",
)  # fmt: skip
ATTACKS = (
    *REPOSITORIES, *LINKS, *ENTRIES, *RACES, *PLACES,
    Attack("files that run or steer", f"writes(*{STEERING!r}, 'plain')",
           ";".join(f"consent: {path}" for path in STEERING)),
)  # fmt: skip
