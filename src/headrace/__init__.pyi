from headrace.client.queue.client import AsyncClient as AsyncClient
from headrace.client.queue.message import AsyncMessage as AsyncMessage
from headrace.client.queue.message import Reject as Reject
from headrace.client.queue.message import Retry as Retry
from headrace.client.queue.outgoing import OutgoingMessage as OutgoingMessage
from headrace.client.queue.queue import AsyncQueue as AsyncQueue
from headrace.client.queue.sync import Client as Client
from headrace.client.queue.sync import Message as Message
from headrace.client.queue.sync import Queue as Queue
from headrace.client.queue.sync_transaction import Transaction as Transaction
from headrace.client.queue.transaction import AsyncTransaction as AsyncTransaction
from headrace.client.settings import QueueClientConfig as QueueClientConfig
from headrace.client.worker.runner import Stop as Stop
from headrace.client.worker.worker import worker as worker
from headrace.model.errors import HeadraceError as HeadraceError

__version__: str
