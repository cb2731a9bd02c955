"""``glocal deploy up --local N``: a whole deployment on this machine, for a first look.

The data that the plan names is partitioned as in a simulation, and its clients are divided among N
nodes, each with a key, a resident process and a SuperNode of its own.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from glocal.core import files
from glocal.core.errors import GlocalError
from glocal.deploy import certificates, join, up
from glocal.deploy.admit import admit
from glocal.deploy.node_folder import Approved, NodeFolder
from glocal.deploy.schema_plan import SchemaPlan
from glocal.deploy.server_folder import ServerFolder, check_name
from glocal.deploy.supervisor import kept


def node_folders(folder: ServerFolder, nodes: int) -> list[NodeFolder]:
    """Make the folders of the nodes, and admit them; those that are there are taken again."""
    plan = folder.plan
    if isinstance(plan, SchemaPlan):
        raise GlocalError(
            "--local takes the data that the settings name, whose schema is known: make the "
            "deployment without --schema."
        )
    names = plan.config.federation(announced=False).names
    if not 1 <= nodes <= len(names):
        raise GlocalError(
            f"--local {nodes} does not go with {len(names)} clients: give 1 to {len(names)} nodes."
        )
    made = []
    for number, part in enumerate(_divided(len(names), nodes)):
        node = NodeFolder(files.make_folder(folder.path / "nodes" / str(number)))
        node.path.chmod(0o700)
        key = certificates.make_node_key(node.key)
        files.write(node.public_key, f"{key}\n".encode())
        files.write(node.authority, folder.authority.read_bytes())
        plan.write(node.plan_file)
        address = f"127.0.0.1:{folder.settings.port}"
        approved = Approved.now(f"node {number}", address, plan.digest)
        node.write_approved(replace(approved, part=tuple(part)))
        for client in part:
            admit(folder, check_name(names[client]), key)
        made.append(node)
    return made


def run_local(folder: ServerFolder, nodes: int, say: up.Say, on_line: up.OnLine) -> None:
    """Run the server, and the nodes beside it."""
    made = node_folders(folder, nodes)
    children = [child for node in made for child in join.children(node)]
    with kept(*children):

        def keep() -> None:
            for child in children:
                child.keep()

        up.run(folder, say, on_line, keep)


def _divided(clients: int, nodes: int) -> list[range]:
    """The clients' numbers, in parts that differ by one at most."""
    cuts = [clients * number // nodes for number in range(nodes + 1)]
    return [range(begin, end) for begin, end in pairwise(cuts)]
