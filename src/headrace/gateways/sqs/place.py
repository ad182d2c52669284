"""How SQS names queues: addresses (URLs) and ARNs, both made of the account and the queue's name."""

from headrace.gateways.sqs.config import SqsConfig
from headrace.wire.sqs.error import INVALID_ADDRESS, INVALID_VALUE, SqsError, missing


class Places:
    """Names of queues to addresses and ARNs. One account is served, so the way back does not look at it."""

    def __init__(self, config: SqsConfig) -> None:
        self.account = config.account
        self._arn_prefix = f"arn:aws:sqs:{config.region}:{config.account}:"

    def url(self, host: str, name: str) -> str:
        """The address under the name by which the client reached us, so that it reaches us again."""
        return f"http://{host}/{self.account}/{name}"

    def arn(self, name: str) -> str:
        return self._arn_prefix + name


def name_of_url(url: str) -> str:
    """A queue's name, from its address or by itself, as some tools pass it."""
    if not url:
        raise missing("QueueUrl")
    name = url.rpartition("/")[2]
    if not name:
        raise SqsError(INVALID_ADDRESS, f"The address {url[:200]} is not valid for this endpoint.")
    return name


def name_of_arn(arn: str, parameter: str) -> str:
    parts = arn.split(":")
    if len(parts) != 6 or parts[0] != "arn" or parts[2] != "sqs" or not parts[5]:
        raise SqsError(
            INVALID_VALUE,
            f"You must use this format to specify the {parameter}: "
            "arn:<partition>:<service>:<region>:<account-id>:<resource-id>",
        )
    return parts[5]
