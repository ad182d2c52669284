"""`headrace pipeline run capacity`."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.pipeline_run import ReportOption, Where, pipeline_command
from headrace.cli.queue_session import HttpOption
from headrace.cli.session import DEFAULT_SERVER, ServerOption, parse_pairs
from headrace.client.settings import DEFAULT_HTTP
from headrace.spark.errors import OptionError

_LOAD = "The load"
_MACHINE = "The machines"
_FIGURES = "The figures"

MessagesOption = Annotated[
    float, typer.Option("--messages", metavar="N", help="Messages a day.", rich_help_panel=_LOAD)
]
SizeOption = Annotated[float, typer.Option("--size", metavar="BYTES", help="Of a message.", rich_help_panel=_LOAD)]
PeakOption = Annotated[float, typer.Option("--peak", metavar="N", help="Messages a second.", rich_help_panel=_LOAD)]
DaysOption = Annotated[float, typer.Option("--days", metavar="N", help="They are kept.", rich_help_panel=_LOAD)]
ReplicasOption = Annotated[int, typer.Option("--replicas", metavar="N", help="Copies.", rich_help_panel=_LOAD)]
ReadersOption = Annotated[
    int, typer.Option("--readers", metavar="N", help="Groups that read each message.", rich_help_panel=_LOAD)
]
CompressionOption = Annotated[
    float, typer.Option("--compression", metavar="RATIO", help="Bytes that become one.", rich_help_panel=_LOAD)
]
RollupOption = Annotated[
    str | None,
    typer.Option("--rollup", metavar="TABLE", help="Take rate and size from a rollup's table.", rich_help_panel=_LOAD),
]
GrowthOption = Annotated[
    float, typer.Option("--growth", metavar="FACTOR", help="Times what the rollup saw.", rich_help_panel=_LOAD)
]
CoresOption = Annotated[int, typer.Option("--cores", metavar="N", rich_help_panel=_MACHINE)]
DiskOption = Annotated[float, typer.Option("--disk", metavar="TB", rich_help_panel=_MACHINE)]
NetworkOption = Annotated[float, typer.Option("--network", metavar="GBIT/S", rich_help_panel=_MACHINE)]
HeadroomOption = Annotated[
    float, typer.Option("--headroom", metavar="PART", help="Free at the peak.", rich_help_panel=_MACHINE)
]
DiskFillOption = Annotated[
    float, typer.Option("--disk-fill", metavar="PART", help="At most so full.", rich_help_panel=_MACHINE)
]
SpareOption = Annotated[
    int, typer.Option("--spare", metavar="N", help="Machines that may be missing.", rich_help_panel=_MACHINE)
]
BatchOption = Annotated[
    int,
    typer.Option("--batch", metavar="1|10|100", help="Messages a request to a queue.", rich_help_panel=_FIGURES),
]
FigureOption = Annotated[
    list[str] | None,
    typer.Option(
        "--figure",
        metavar="NAME=VALUE",
        help="A figure that you know: produce, consume, partition, send, receive, acknowledge, archive "
        "(messages/s), record_overhead (bytes). May be repeated.",
        rich_help_panel=_FIGURES,
    ),
]
BenchOption = Annotated[
    Path | None,
    typer.Option("--bench", metavar="DIR", help="Results of `make bench`.", rich_help_panel=_FIGURES),
]
MeasureOption = Annotated[
    bool,
    typer.Option("--measure", help="Measure the node now: some seconds of load on it.", rich_help_panel=_FIGURES),
]
SecondsOption = Annotated[
    float,
    typer.Option("--seconds", metavar="N", min=0.1, help="For each thing, with --measure.", rich_help_panel=_FIGURES),
]


@pipeline_command(continuous=False, session=False)
def capacity(
    where: Where,
    *,
    messages: MessagesOption = 1e9,
    size: SizeOption = 1024,
    peak: PeakOption = 100_000,
    days: DaysOption = 7,
    replicas: ReplicasOption = 3,
    readers: ReadersOption = 1,
    compression: CompressionOption = 1.0,
    rollup: RollupOption = None,
    growth: GrowthOption = 1.0,
    cores: CoresOption = 8,
    disk: DiskOption = 8,
    network: NetworkOption = 10,
    headroom: HeadroomOption = 0.4,
    disk_fill: DiskFillOption = 0.8,
    spare: SpareOption = 1,
    batch: BatchOption = 10,
    figure: FigureOption = None,
    bench: BenchOption = None,
    measuring: MeasureOption = False,
    seconds: SecondsOption = 3.0,
    server: ServerOption = DEFAULT_SERVER,
    http: HttpOption = DEFAULT_HTTP,
    report: ReportOption = None,
) -> None:
    """Say how many machines, nodes, disks and partitions a load takes, with every formula and figure.

    Without options it is a billion messages a day of 1 KB, 100,000 a second at the peak, kept for 7 days in 3 copies,
    by figures that the project has measured.

    [bold]Examples[/]

    [cyan]headrace pipeline run capacity[/]

    [cyan]headrace pipeline run capacity --messages 2e8 --peak 20000 --compression 4 --measure[/]

    [cyan]headrace pipeline run capacity --rollup /lake/rollup --growth 3 --report capacity.html[/]
    """
    from headrace.spark.pipeline import capacity_run as pipeline
    from headrace.spark.pipeline.capacity import GB, TB, Load, Machine, check_positive
    from headrace.spark.pipeline.figures import BATCHES, UNITS
    from headrace.spark.pipeline.measure import Measurement

    if batch not in BATCHES:
        raise OptionError(f"--batch {batch} was not measured; take one of {', '.join(map(str, BATCHES))}")
    check_positive("--growth", growth)
    load = Load(
        messages_per_day=messages,
        message_bytes=size,
        peak_per_s=peak,
        retention_days=days,
        replicas=replicas,
        readers=readers,
        compression=compression,
    )
    machine = Machine(
        cores=cores,
        disk_bytes=disk * TB,
        network_bits_per_s=network * GB,
        headroom=headroom,
        disk_fill_max=disk_fill,
        spare=spare,
    )
    measurement = Measurement(server=server, http=http, message_bytes=round(size), batch=batch, seconds=seconds)
    options = pipeline.CapacityOptions(
        load=load,
        machine=machine,
        batch=batch,
        given=_figures(figure or [], UNITS),
        bench=bench,
        measurement=measurement if measuring else None,
        rollup=rollup,
        growth=growth,
        report=report,
    )
    where.run("capacity", options.identity(), lambda run: pipeline.run(options, run))


def _figures(texts: list[str], known: dict[str, str]) -> dict[str, float]:
    from headrace.spark.pipeline.capacity import check_positive
    from headrace.spark.pipeline.figures import RECORD_OVERHEAD

    given = {}
    for name, text in parse_pairs(texts):
        if name not in known:
            raise OptionError(f"--figure {name} is none that is used; there are {', '.join(known)}")
        try:
            given[name] = float(text)
        except ValueError:
            raise OptionError(f"--figure {name}={text} is no number") from None
        if name != RECORD_OVERHEAD or given[name] != 0:  # a format may have no overhead
            check_positive(f"--figure {name}={text}:", given[name])
    return given
