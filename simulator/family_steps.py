"""A check that the steps of every site of a family are known at every moment, even after a restart, before it joins.

Except of a site that another process has delivered, from a copy of its state_dir, until it has connected again.
"""

from collections.abc import Iterable

from countless.errors import InvariantBroken
from countless.server.site_server import SiteServer
from simulator.process import Process
from simulator.truth import families_of


def check_steps(servers: Iterable[SiteServer], processes: Iterable[Process]) -> None:
    running = [process for process in processes if not process.copied]
    in_force = {key: steps for process in running for key, steps in process.client.family_steps.items()}
    for server in servers:
        for family in families_of(server):
            for site_id, member in family.coordinator.members():
                steps = in_force.get((family.name, site_id), member.steps)
                if steps.label > member.steps.label or steps.total > member.steps.total:
                    raise InvariantBroken(f"{site_id} reports {family.name} in {steps}; known is {member.steps}")
