"""What a run of a project is asked to do, checked before anything starts."""

from dataclasses import dataclass

from headrace.spark.errors import OptionError


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectOptions:
    full_refresh: tuple[str, ...] = ()  # thrown away and computed from the start
    full_refresh_all: bool = False
    refresh: tuple[str, ...] = ()  # only these; empty: everything
    is_dry: bool = False  # only check the project
    servers: str | None = None  # instead of what the project says
    storage: str | None = None  # instead of what the project says
    is_remote: bool = False  # the session is on a Connect server of somebody else's
    is_verbose: bool = False

    def __post_init__(self) -> None:
        if self.full_refresh_all and (self.full_refresh or self.refresh):
            raise OptionError("--full-refresh-all means every table; leave --full-refresh and --refresh away")
        if self.is_dry and (self.full_refresh_all or self.full_refresh or self.refresh):
            raise OptionError("--dry-run changes no table; leave --refresh and --full-refresh away")
