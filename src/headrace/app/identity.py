"""Whose disk this is, and in which form: `node.toml` in the data directory, compared at every start."""

import logging
import tomllib

from headrace.host.disk import Disk, read_file, write_atomically
from headrace.host.rand import Rand
from headrace.log.made import NAME as MADE
from headrace.log.startup import PARTITIONS
from headrace.model.errors import ForeignDataError

_logger = logging.getLogger(__name__)

_NAME = "node.toml"
# Of everything below the data directory, as a whole. It rises when an older headrace would misread what is written, and
# an older one then refuses the directory. A file without a number is of an earlier format.
FORMAT = 1
# What a node makes after its metadata.
_LATER = (_NAME, MADE, PARTITIONS)


def check_complete(disk: Disk, directory: str, metadata_file: str) -> None:
    """Refuse a directory that was a node's and has lost its metadata: an empty store would hide every message in it."""
    if disk.exists(f"{directory}/{metadata_file}"):
        return
    for name in _LATER:
        if disk.exists(f"{directory}/{name}"):
            raise ForeignDataError(
                f"{directory} is a node's data directory, since it has {name}, and its {metadata_file} is missing; "
                "restore that file. Nothing was changed or deleted"
            )


def check_identity(disk: Disk, rand: Rand, directory: str, *, node_id: int, cluster_id: str) -> str:
    """Refuse another node's or cluster's data. Returns the incarnation: a disk that came back empty has a new one."""
    path = f"{directory}/{_NAME}"
    if not disk.exists(path):
        if disk.exists(f"{directory}/{MADE}"):
            _logger.warning("the file that says whose data this is was missing, and is made anew", extra={"file": path})
        incarnation = str(rand.uuid())
        _write(disk, directory, (node_id, cluster_id, incarnation))
        return incarnation
    try:
        found = tomllib.loads(read_file(disk, path).decode())
        form = int(found.get("format", 0))
        if form > FORMAT:
            raise ForeignDataError(
                f"{directory} was written by a newer headrace, in format {form}, and this one reads formats up to "
                f"{FORMAT}; start that version again. Nothing was changed"
            )
        owner = (int(found["node_id"]), str(found["cluster_id"]), str(found["incarnation"]))
    except KeyError as error:
        raise ForeignDataError(
            f"{path} says no {error.args[0]}; restore the file, or start with an empty --data"
        ) from error
    except (ValueError, TypeError) as error:
        raise ForeignDataError(f"{path} cannot be read ({error}); restore it, or start with an empty --data") from error
    if owner[:2] != (node_id, cluster_id):
        raise ForeignDataError(
            f"{directory} belongs to node {owner[0]} of cluster {owner[1]}, and this is node {node_id} of "
            f"{cluster_id}; start with the right --data and --node-id"
        )
    if form < FORMAT:
        _write(disk, directory, owner)
    return owner[2]


def _write(disk: Disk, directory: str, owner: tuple[int, str, str]) -> None:
    node_id, cluster_id, incarnation = owner
    text = f'format = {FORMAT}\nnode_id = {node_id}\ncluster_id = "{cluster_id}"\nincarnation = "{incarnation}"\n'
    write_atomically(disk, directory, _NAME, text.encode())
