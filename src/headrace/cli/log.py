"""`headrace log`: look into segment files without a node.

The files are read and never changed. Of a node that runs, the last batch may be half written; of one that crashed, a
torn tail is cut when it starts again. Everything else that does not check is damage.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import Progress

from headrace.cli.moment import show_moment
from headrace.cli.output import EXIT_FAILED, App, Group, JsonOption, as_text, emit_json, emit_table, notice, people
from headrace.cli.text import bytes_to_json
from headrace.host.disk import Disk, File, SystemDisk
from headrace.log.cleaned import Cleaned, add_place, read_cleaned
from headrace.log.compacted import NAME as COMPACTED_NAME
from headrace.log.compacted import read_compacted
from headrace.log.segment import LOG_SUFFIX, check_crc, check_header
from headrace.model.batch import HEADER_SIZE, BatchHeader, read_header
from headrace.model.errors import CorruptLogError, HeadraceError, InvalidRequestError
from headrace.wire.kafka.compression import Codec
from headrace.wire.kafka.records import Record, decode_batch

app = App(cls=Group, no_args_is_help=True, help="Look into segment files, with the node running or not.")

PathsArgument = Annotated[
    list[Path],
    typer.Argument(metavar="PATH", help="Segment files (.log), or directories with such below.", show_default=False),
]


def find_segments(paths: list[Path]) -> list[Path]:
    """The segment files that are meant, in order."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(path.rglob(f"*{LOG_SUFFIX}"))
        elif path.exists():
            found.append(path)
        else:
            raise InvalidRequestError(f"{path} does not exist")
    if not found:
        raise InvalidRequestError(f"there is no {LOG_SUFFIX} file under {', '.join(map(str, paths))}")
    return found


def walk(disk: Disk, path: Path) -> Iterator[tuple[int, BatchHeader, bytes]]:
    """Position, header and bytes of each batch in a file, every one checked. CorruptLogError at the first damage."""
    file = disk.open(str(path))
    base, _, generation = path.stem.partition(".")
    try:
        cleaned = _find_cleaned(disk, path, int(base), int(generation)) if generation.isdigit() else None
        yield from _walk(file, str(path), int(base) if base.isdigit() else None, cleaned)
    finally:
        file.close()


def _find_cleaned(disk: Disk, path: Path, base_offset: int, generation: int) -> Cleaned:
    """What the partition says of a cleaned segment."""
    for entry in read_cleaned(disk, str(path.parent)) or ():
        if (entry.base_offset, entry.generation) == (base_offset, generation):
            return entry
    raise CorruptLogError(
        file=str(path), position=0, expected="an entry in the list of cleaned segments", found="none", what="segment"
    )


def _walk(
    file: File, path: str, expected_offset: int | None, cleaned: Cleaned | None
) -> Iterator[tuple[int, BatchHeader, bytes]]:
    position, size = 0, file.size()
    gap_bytes = cleaned.size if cleaned else 0
    if size < gap_bytes:
        raise CorruptLogError(file=path, position=size, expected=gap_bytes, found=size, what="size")
    places_crc = 0
    while position < size:
        head = file.pread(position, HEADER_SIZE)
        if len(head) < HEADER_SIZE:
            raise CorruptLogError(
                file=path, position=position, expected=HEADER_SIZE, found=len(head), what="bytes of a batch header"
            )
        header = read_header(head)
        expected = header.base_offset if expected_offset is None else expected_offset
        check_header(
            header,
            path=path,
            position=position,
            size_left=size - position,
            expected_offset=expected,
            may_skip=position < gap_bytes,
        )
        batch = file.pread(position, header.size)
        check_crc(header, batch, path=path, position=position)
        if position < gap_bytes:
            places_crc = add_place(places_crc, batch, 0)
        yield position, header, batch
        position += header.size
        expected_offset = header.next_offset
        if cleaned is not None and position == gap_bytes:
            expected_offset = cleaned.next_offset
            if places_crc != cleaned.places_crc:
                raise CorruptLogError(
                    file=path,
                    position=0,
                    expected=f"{cleaned.places_crc:08x}",
                    found=f"{places_crc:08x}",
                    what="checksum over the offsets, lengths and epochs of batches",
                )


@app.command()
def dump(
    paths: PathsArgument,
    *,
    records: Annotated[bool, typer.Option("--records", "-r", help="Also the messages of each batch.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the batches of segment files, and with --records their messages.

    [bold]Examples[/]

    [cyan]headrace log dump data/partitions/*/00000000000000000000.log[/]

    [cyan]headrace log dump data --records --json[/]
    """
    disk = SystemDisk()
    for path in find_segments(paths):
        if as_json:
            for position, header, batch in walk(disk, path):
                emit_json(_batch_json(path, position, header, batch, with_records=records))
            continue
        people().print(f"[bold]{escape(str(path))}[/]")
        rows: list[tuple[object, ...]] = []
        try:
            for position, header, batch in walk(disk, path):
                rows.append(_row(position, header))
                if records:
                    rows += [_record_row(record) for record in decode_batch(batch)]
        finally:
            # What was read before the damage is still worth seeing.
            emit_table(_COLUMNS, rows)


_COLUMNS = ("position", "offsets", "bytes", "messages", "epoch", "codec", "kind", "producer", "newest")


def _row(position: int, header: BatchHeader) -> tuple[object, ...]:
    producer = (
        f"{header.producer_id}/{header.producer_epoch} from {header.base_sequence}" if header.has_producer else "-"
    )
    return (
        str(position),
        f"{header.base_offset}-{header.last_offset}",
        str(header.size),
        str(header.record_count),
        str(header.leader_epoch),
        _codec(header),
        _kind(header),
        producer,
        show_moment(header.max_timestamp_ms),
    )


def _record_row(record: Record) -> tuple[object, ...]:
    key = "null" if record.key is None else as_text(record.key)
    value = "null" if record.value is None else as_text(record.value)
    return "", str(record.offset), "", "", "", "", "", f"{key} = {value}", show_moment(record.timestamp_ms)


def _codec(header: BatchHeader) -> str:
    return Codec(header.codec).name.lower() if header.codec in set(Codec) else f"unknown ({header.codec})"


def _kind(header: BatchHeader) -> str:
    if header.is_control:
        return "control"
    return "transactional" if header.is_transactional else "messages"


def _batch_json(path: Path, position: int, header: BatchHeader, batch: bytes, *, with_records: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "file": str(path),
        "position": position,
        "size": header.size,
        "last_offset": header.last_offset,
        "codec": _codec(header),
        "kind": _kind(header),
        **header._asdict(),
    }
    if with_records:
        document["records"] = [
            {
                "offset": record.offset,
                "timestamp_ms": record.timestamp_ms,
                **bytes_to_json("key", record.key),
                **bytes_to_json("value", record.value),
                "headers": [{"name": name, **bytes_to_json("value", value)} for name, value in record.headers],
            }
            for record in decode_batch(batch)
        ]
    return document


@app.command()
def verify(
    paths: PathsArgument,
    *,
    deep: Annotated[bool, typer.Option("--deep", help="Also decompress every batch and read its messages.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check every batch of segment files: place, length, offsets and checksum.

    Damage is reported with file, position, what was expected and what was found,
    and the exit code is 1.

    [bold]Example[/]

    [cyan]headrace log verify data[/]
    """
    segments = find_segments(paths)
    reports: list[dict[str, Any]] = []
    with Progress(transient=True, disable=as_json or not people().is_terminal) as progress:
        task = progress.add_task("checking", total=sum(path.stat().st_size for path in segments))
        for path in segments:
            reports.append(_verify_segment(SystemDisk(), path, deep=deep))
            progress.advance(task, path.stat().st_size)
    if as_json:
        emit_json(reports)
    else:
        _report(reports)
    if any(report["error"] for report in reports):
        raise typer.Exit(EXIT_FAILED)


def _verify_segment(disk: Disk, path: Path, *, deep: bool) -> dict[str, Any]:
    report: dict[str, Any] = {"file": str(path), "batches": 0, "messages": 0, "bytes": 0, "error": None}
    directory = str(path.parent)
    if disk.exists(f"{directory}/{COMPACTED_NAME}"):
        report["compacted_upto"] = read_compacted(disk, directory).upto
    try:
        for position, header, batch in walk(disk, path):
            if deep:
                _read_records(path, position, batch)
            report["batches"] += 1
            report["messages"] += header.record_count
            report["bytes"] += header.size
    except CorruptLogError as error:
        # In words of its own: the error's advise verifying, which is what is being done.
        report["error"] = (
            f"{error.file} at position {error.position}: {error.what} expected {error.expected}, found {error.found}; "
            "restore the file from a backup or a replica"
        )
        report["damage"] = {
            "position": error.position,
            "what": error.what,
            "expected": str(error.expected),
            "found": str(error.found),
        }
    except OSError as error:
        report["error"] = f"{path} cannot be read: {error.strerror}"
    return report


def _read_records(path: Path, position: int, batch: bytes) -> None:
    try:
        decode_batch(batch)
    except HeadraceError as error:
        raise CorruptLogError(
            file=str(path), position=position + HEADER_SIZE, expected="readable records", found=error, what="records"
        ) from error


def _report(reports: list[dict[str, Any]]) -> None:
    emit_table(
        ("file", "batches", "messages", "bytes", "state"),
        [(r["file"], r["batches"], r["messages"], r["bytes"], "damaged" if r["error"] else "intact") for r in reports],
    )
    compacted = {Path(r["file"]).parent: r["compacted_upto"] for r in reports if "compacted_upto" in r}
    for directory, offset in compacted.items():
        people().print(f"{directory} is compacted up to offset {offset}", markup=False)
    for report in reports:
        if report["error"]:
            notice(f"[bold red]damaged:[/] {report['error']}")
