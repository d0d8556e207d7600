"""The adversaries by name (SPEC 7). A new one is a file in `adversaries/` and a line here; the tests pick
it up.
"""

from countless.arena.adversaries.averager import Averager
from countless.arena.adversaries.feedback import Feedback
from countless.arena.adversaries.group_freeze import GroupFreeze
from countless.arena.adversaries.leak_chaser import LeakChaser
from countless.arena.adversaries.leave_before_jump import LeaveBeforeJump
from countless.arena.adversaries.message_reader import MessageReader
from countless.arena.adversaries.round_boundary import RoundBoundary
from countless.arena.adversaries.round_robin import RoundRobin
from countless.arena.adversaries.single_site import SingleSite
from countless.arena.adversaries.stop_after_jump import StopAfterJump
from countless.arena.adversaries.uniform import Uniform
from countless.arena.adversaries.zipf import Zipf
from countless.arena.game import Adversary
from countless.errors import UnknownName

CONTROLS: tuple[type[Adversary], ...] = (RoundRobin, Uniform, Zipf, SingleSite)
ATTACKS: tuple[type[Adversary], ...] = (
    StopAfterJump,
    LeaveBeforeJump,
    GroupFreeze,
    LeakChaser,
    Averager,
    RoundBoundary,
    Feedback,
    MessageReader,
)
ADVERSARIES: dict[str, type[Adversary]] = {adversary.name: adversary for adversary in CONTROLS + ATTACKS}
SEARCH = "search"  # evolves the parameters of the others: see `countless.arena.adversaries.search`


def adversary_named(name: str, **parameters: object) -> Adversary:
    """An adversary with its default parameters, or with those given."""
    if name not in ADVERSARIES:
        raise UnknownName("adversary", name, [*ADVERSARIES, SEARCH])
    return ADVERSARIES[name](**parameters)
