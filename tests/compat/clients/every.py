"""The clients that headrace is held against."""

from tests.compat.clients.aio import Aiokafka
from tests.compat.clients.confluent import Confluent
from tests.compat.clients.kafka_python import KafkaPython
from tests.compat.clients.kcat import Kcat
from tests.compat.clients.message import Client

CONFLUENT: Client = Confluent()
KAFKA_PYTHON: Client = KafkaPython()
AIOKAFKA: Client = Aiokafka()
KCAT: Client = Kcat()

CLIENTS: tuple[Client, ...] = (CONFLUENT, KAFKA_PYTHON, AIOKAFKA, KCAT)
