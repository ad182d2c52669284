"""Whose disk this is: `node.toml` in the data directory, written once and compared at every start."""

import logging
import tomllib

from headrace.host.disk import Disk, read_file, write_atomically
from headrace.host.rand import Rand
from headrace.log.made import NAME as MADE
from headrace.log.startup import PARTITIONS
from headrace.model.errors import ForeignDataError

_logger = logging.getLogger(__name__)

_NAME = "node.toml"
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
        text = f'node_id = {node_id}\ncluster_id = "{cluster_id}"\nincarnation = "{incarnation}"\n'
        write_atomically(disk, directory, _NAME, text.encode())
        return incarnation
    try:
        found = tomllib.loads(read_file(disk, path).decode())
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
    return owner[2]
