"""AWS's API reference for SQS, a row for each statement of what is refused, against a node in both protocols.

The words are those that AWS's SDKs show to people. Where a node says something else on purpose, `docs/sqs.md` says why.
"""

import pytest
from botocore.exceptions import ClientError
from tests.compat.sqs_message_refusals import MESSAGE_REFUSALS
from tests.compat.sqs_queue_refusals import QUEUE_REFUSALS
from tests.compat.sqs_refusal import Refusal
from tests.compat.sqs_world import World

# The older protocol has its own sentence for this one.
QUERY_WORDS = {"The specified queue does not exist.": "The specified queue does not exist for this wsdl version."}


@pytest.mark.parametrize("row", QUEUE_REFUSALS + MESSAGE_REFUSALS, ids=repr)
def test_a_request_is_refused_in_the_words_of_aws(world: World, row: Refusal) -> None:
    with pytest.raises(ClientError) as refusal:
        world.call(row.operation, **row.parameters)
    error = refusal.value.response["Error"]
    message = world.filled(row.message)
    if world.is_query:
        message = QUERY_WORDS.get(message, message)
    assert (error["Code"], error["Message"]) == (row.code, message)
    assert error["Type"] == "Sender"
