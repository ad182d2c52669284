"""JoinGroup (key 11), versions 0 to 9: become a member of a group's next generation.

Answered when the generation begins, which may take as long as the slowest member's rebalance time-out. Version 0 has no
time-out for that and the session's is taken. From 4 a new member is first told its id and asks again with it; 5 has
static members; 9 tells a static leader that came back to leave the assignment as it is. The reason of 8 is not kept.
Served by hand for the client's id, which stands in the request's header and names the member, and for its host.
"""

from headrace.broker.group.port import Join
from headrace.gateways.kafka.answer import Answer, Reply, Wait
from headrace.gateways.kafka.body import read_body
from headrace.gateways.kafka.context import Context, PeerApi
from headrace.gateways.kafka.errors import ErrorCode
from headrace.gateways.kafka.outcome import outcome_code
from headrace.model.errors import MemberIdRequiredError
from headrace.wire.kafka.frame import RequestHeader, encode_response
from headrace.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

_REBALANCE_TIMEOUT_FROM = 1
_ID_REQUIRED_FROM = 4
_PROTOCOL_TYPE_FROM = 7
_SKIP_ASSIGNMENT_FROM = 9
_KEY = 11


def _serve(context: Context, header: RequestHeader, frame: bytearray, host: str) -> Reply:
    return Wait(_join(context, header, read_body(header, frame), host))


async def _join(context: Context, header: RequestHeader, request: JoinGroupRequest, host: str) -> Answer:
    version = header.api_version
    has_timeout = version >= _REBALANCE_TIMEOUT_FROM
    join = Join(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=header.client_id or "",
        client_host=host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_timeout else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        is_id_required=version >= _ID_REQUIRED_FROM,
        can_skip_assignment=version >= _SKIP_ASSIGNMENT_FROM,
    )
    try:
        joined = await context.groups.join(join)
    except Exception as error:  # noqa: BLE001 - becomes an answer; the unexpected is logged
        member_id = error.member_id if isinstance(error, MemberIdRequiredError) else request.member_id
        return _refusal(header, outcome_code(context, error), member_id)
    response = JoinGroupResponse(
        generation_id=joined.generation,
        protocol_type=joined.protocol_type if version >= _PROTOCOL_TYPE_FROM else None,
        protocol_name=joined.protocol_name,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=tuple(
            JoinGroupResponseMember(member.member_id, member.instance_id, member.metadata) for member in joined.members
        ),
    )
    return [encode_response(_KEY, version, header.correlation_id, response)]


def _refusal(header: RequestHeader, code: int, member_id: str) -> Answer:
    # Before 7 the name must not be null.
    name = None if header.api_version >= _PROTOCOL_TYPE_FROM else ""
    full = code == ErrorCode.GROUP_MAX_SIZE_REACHED
    response = JoinGroupResponse(error_code=code, protocol_name=name, member_id="" if full else member_id)
    return [encode_response(_KEY, header.api_version, header.correlation_id, response)]


def _refuse(context: Context, header: RequestHeader, frame: bytearray, code: int, message: str) -> Reply:
    request: JoinGroupRequest = read_body(header, frame)
    return _refusal(header, code, request.member_id)


API = PeerApi(key=_KEY, version_min=0, version_max=9, serve=_serve, refuse=_refuse)
