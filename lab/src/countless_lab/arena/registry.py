"""The adversaries by name. A new one is a file in `adversaries/` and a line here; the tests run with every one.

Other packages add theirs by the entry point group `countless.adversaries`.
"""

from countless.errors import UnknownName
from countless.plugins import plugins
from countless_lab.arena.adversaries.autoscaler import Autoscaler
from countless_lab.arena.adversaries.averager import Averager
from countless_lab.arena.adversaries.controls import RoundRobin, SingleSite, Uniform, Zipf
from countless_lab.arena.adversaries.feedback import Feedback
from countless_lab.arena.adversaries.group_freeze import GroupFreeze
from countless_lab.arena.adversaries.leak_chaser import LeakChaser
from countless_lab.arena.adversaries.leave_before_jump import LeaveBeforeJump
from countless_lab.arena.adversaries.message_reader import MessageReader
from countless_lab.arena.adversaries.round_boundary import RoundBoundary
from countless_lab.arena.adversaries.step_chaser import StepChaser
from countless_lab.arena.adversaries.stop_after_jump import StopAfterJump
from countless_lab.arena.game import Adversary

CONTROLS: tuple[type[Adversary], ...] = (RoundRobin, Uniform, Zipf, SingleSite)
ATTACKS: tuple[type[Adversary], ...] = (
    StopAfterJump,
    LeaveBeforeJump,
    GroupFreeze,
    LeakChaser,
    Averager,
    RoundBoundary,
    Feedback,
    Autoscaler,
    StepChaser,
    MessageReader,
)
ADVERSARIES: dict[str, type[Adversary]] = {adversary.name: adversary for adversary in CONTROLS + ATTACKS}
ADVERSARIES.update(plugins("countless.adversaries", Adversary, ADVERSARIES))
SEARCH = "search"  # evolves the parameters of the others: see `countless_lab.arena.search`


def adversary_named(name: str, **parameters: object) -> Adversary:
    if name not in ADVERSARIES:
        raise UnknownName("adversary", name, [*ADVERSARIES, SEARCH])
    return ADVERSARIES[name](**parameters)
