"""An administrator's call for one partition: `POST /topics/{topic}/partitions/{partition}/reopen`.

It is for a partition that is offline since its disk failed or an unexpected error ended its term, once the cause is
gone. The answer comes when the partition is served again; a partition that stays offline answers why.
"""

from collections.abc import Awaitable, Callable

from headrace.broker.partition import Partition
from headrace.gateways.http.message import Request, Response, json_response, problem
from headrace.gateways.http.router import Route

_PATH = "/topics/{topic}/partitions/{partition:[0-9]{1,9}}/reopen"


def partition_routes(
    *, reopen: Callable[[str, int], Awaitable[Partition]], is_admin: bool, admin_address: Callable[[], str]
) -> list[Route]:
    async def reopen_partition(request: Request) -> Response:
        if not is_admin:
            return problem(
                403,
                "administrators_only",
                f"partitions are reopened on the administrator's listener only, which is {admin_address()}; send the "
                "same request there",
            )
        topic, index = request.values
        partition = await reopen(topic, int(index))
        return json_response(
            {
                "topic": topic,
                "partition": partition.id.partition,
                "epoch": partition.epoch,
                "start_offset": partition.start_offset,
                "end_offset": partition.end_offset,
            }
        )

    return [Route("POST", _PATH, reopen_partition)]
