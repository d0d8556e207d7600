"""The operator's token in the coordinator's state directory: the coordinator writes it, local commands read it.

And the message about a token that is refused.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

from countless.errors import InvalidParameter

OPERATOR_TOKEN_FILE = "operator.token"  # noqa: S105 - its name; in the state directory, mode 600
OPERATOR_TOKEN_PREFIX = "countless-operator-"  # noqa: S105
SCOPES = ("site", "read", "operator")  # a token begins with countless-SCOPE-
MAX_TOKEN_LENGTH = 1_000
LISTENING = "0A"  # in Linux's tables of sockets
DEFAULT_STATE_DIR = "countless-state"
SERVICE_STATE_DIR = "/var/lib/countless"  # of the unit and of the container
SERVICE_RUNTIME_DIR = Path("/run/countless")  # of the unit; only root can make it
DYNAMIC_USERS_DIR = Path("/var/lib/private")  # where systemd keeps state directories of units with DynamicUser
OVERFLOW_USER = 65_534  # whom Linux shows for an owner that has no user here


def write_token(path: Path, token: str) -> None:
    """For the owner of the file only. A token that is there is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    try:
        with os.fdopen(create_private(part), "w", encoding="utf-8") as file:
            file.write(f"{token}\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None  # that of a write has no name


def create_private(path: Path) -> int:
    """A descriptor of a new file in the state directory, mode 600. If root makes it, it belongs to the owner of the
    directory: the coordinator has to use it, and usually runs as that user.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    give_to_owner(descriptor, path.parent)
    return descriptor


def give_to_owner(made: int | Path, directory: Path) -> None:
    """Give the owner a file that root has made here, by its descriptor, or a path that is not a link."""
    if os.geteuid() == 0:
        owner = directory.stat()
        os.chown(made, owner.st_uid, owner.st_gid)


def ensure_private(path: Path) -> None:
    """Create the file unless there is one."""
    with suppress(FileExistsError):
        os.close(create_private(path))


def read_token(path: str | Path) -> str:
    """Raises InvalidParameter if there is none that could be sent."""
    try:
        return usable(Path(path).read_text(encoding="utf-8").strip())
    except (OSError, UnicodeError) as error:
        raise InvalidParameter("token file", str(path), f"a readable file with a token ({error})") from None


def usable(token: str) -> str:
    """Raises InvalidParameter without the token, which must not reach a log."""
    if not isinstance(token, str):
        raise InvalidParameter("token", type(token), "a string")
    if not (token and token.isascii() and token.isprintable()):
        raise InvalidParameter("token", f"{len(token)} characters", "one line of printable ASCII")
    return token


def token_problem(scope: str, token: str | None, source: str) -> str:
    """For an error: which token was sent, why it does not do, and how to make one of the scope that is needed."""
    remedy = (
        f"the operator's is {OPERATOR_TOKEN_FILE} in the state directory of the coordinator"
        if scope == "operator"
        else f"on the coordinator's machine, `countless token create {scope} --label NAME` makes one"
    )
    if token is None:
        places = "COUNTLESS_TOKEN_FILE or COUNTLESS_TOKEN, or, on the coordinator's machine, COUNTLESS_STATE_DIR"
        return f"a token of scope {scope} is needed, and none was sent: set {places}; {remedy}"
    if source.endswith(OPERATOR_TOKEN_FILE):
        remedy = "the state directory of this coordinator goes into COUNTLESS_STATE_DIR"
    own = next((each for each in SCOPES if token.startswith(f"countless-{each}-")), None)
    if own is None:
        why = "is no token of Countless"
    elif own in (scope, "operator"):
        why = f"of scope {own} is revoked, expired, or of another coordinator"
    else:
        why = f"has scope {own}"
    return f"a token of scope {scope} is needed, and {source} {why}; {remedy}"


def local_token(port: int) -> tuple[str, Path] | None:
    """The token of a coordinator on this machine, and its file: in `COUNTLESS_STATE_DIR`, or in the usual directories.

    None if a program of another user than the owner of the file or root listens on the port: it would get the token.
    """
    given = os.environ.get("COUNTLESS_STATE_DIR")
    for directory in (given,) if given else (DEFAULT_STATE_DIR, SERVICE_STATE_DIR):
        path = Path(directory) / OPERATOR_TOKEN_FILE
        found = _token_and_owner(path)
        if found is not None:
            token, owner = found
            return (token, path) if listening_users(port) <= {0, _coordinators_user(path.parent, owner)} else None
    return None


def _coordinators_user(directory: Path, owner: int) -> int:
    """The user who runs the coordinator whose state belongs to `owner`.

    Newer versions of systemd map the owner of a state directory: to the unit its files belong to its own user, and to
    all others they belong to user 65534. The runtime directory of the unit, which exists while it runs, shows the user.
    """
    if owner == OVERFLOW_USER and directory.resolve().parent == DYNAMIC_USERS_DIR:
        with suppress(OSError):
            return SERVICE_RUNTIME_DIR.stat().st_uid
        return 0  # the unit does not run, so nothing that listens is the coordinator
    return owner


def _token_and_owner(path: Path) -> tuple[str, int] | None:
    """None if there is none for us. A link or another secret is not sent: another user may have made the directory."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return None
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
        status = os.fstat(descriptor)
        text = file.read(MAX_TOKEN_LENGTH).strip() if stat.S_ISREG(status.st_mode) else ""
    return (usable(text), status.st_uid) if text.startswith(OPERATOR_TOKEN_PREFIX) else None


def listening_users(port: int) -> set[int]:
    """The owners of programs that listen on this port; empty where the system does not tell (it is not Linux)."""
    users = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for row in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                _, local, _, state, _, _, _, user, *_ = row.split()
                if state == LISTENING and int(local.rpartition(":")[2], 16) == port:
                    users.add(int(user))
    return users
