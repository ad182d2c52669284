package headrace;

import headrace.Main.Arguments;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactional producers: partitions that join by being sent to, and offsets that are committed with the output. */
final class Transactions {
    private static final int SENDS = 8;

    private Transactions() {}

    static KafkaProducer<String, String> producer(Arguments arguments, String id) {
        Map<String, Object> defaults = Map.of("transactional.id", id, "linger.ms", "0");
        return new KafkaProducer<>(arguments.settings(defaults), new StringSerializer(), new StringSerializer());
    }

    /** Sends go on while the first of them adds the partition; every fifth transaction is aborted. */
    static void pipelined(Arguments arguments, Map<String, Object> found) throws Exception {
        String topic = arguments.get("topic");
        int committed = 0;
        int aborted = 0;
        List<String> failures = new ArrayList<>();
        try (var producer = producer(arguments, topic)) {
            producer.initTransactions();
            for (int number = 0; number < arguments.number("transactions"); number++) {
                boolean isCommit = number % 5 != 4;
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                producer.beginTransaction();
                try {
                    for (int at = 0; at < SENDS; at++) {
                        String value = (isCommit ? "committed " : "aborted ") + number + " " + at;
                        sent.add(producer.send(new ProducerRecord<>(topic, 0, null, value)));
                        Thread.sleep(arguments.number("gap_ms"));
                    }
                    if (isCommit) {
                        producer.commitTransaction();
                        committed++;
                    } else {
                        producer.flush();
                        producer.abortTransaction();
                        aborted++;
                    }
                    for (Future<RecordMetadata> one : sent) {
                        one.get();
                    }
                } catch (KafkaException error) {
                    failures.add(error.toString());
                    producer.abortTransaction();
                }
            }
        }
        found.put("committed", committed);
        found.put("aborted", aborted);
        found.put("failures", failures);
        found.put("read", read(arguments, topic));
    }

    /** All committed values of the topic's partition 0, in order. */
    private static List<String> read(Arguments arguments, String topic) {
        List<String> values = new ArrayList<>();
        Map<String, Object> defaults = Map.of("isolation.level", "read_committed", "enable.auto.commit", "false");
        try (var consumer =
                new KafkaConsumer<>(arguments.settings(defaults), new StringDeserializer(), new StringDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long last = consumer.endOffsets(List.of(partition)).get(partition);
            long end = System.nanoTime() + Main.DEADLINE.toNanos();
            while (consumer.position(partition) < last && System.nanoTime() < end) {
                consumer.poll(Duration.ofMillis(200)).forEach(one -> values.add(one.value()));
            }
        }
        return values;
    }

    /** Reads a topic in a group and writes each value to another, offsets and output in one transaction. */
    static void copy(Arguments arguments, Map<String, Object> found) throws Exception {
        String input = arguments.get("input");
        String output = arguments.get("output");
        int wanted = arguments.number("count");
        Map<String, Object> defaults = Map.of(
                "group.id", input,
                "group.protocol", arguments.get("protocol"),
                "auto.offset.reset", "earliest",
                "enable.auto.commit", "false",
                "max.poll.records", "20");
        int copied = 0;
        int transactions = 0;
        try (var producer = producer(arguments, input);
                var consumer = new KafkaConsumer<>(
                        arguments.settings(defaults), new StringDeserializer(), new StringDeserializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(input));
            long end = System.nanoTime() + Main.DEADLINE.toNanos();
            while (copied < wanted && System.nanoTime() < end) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(output, record.partition(), null, record.value()));
                    offsets.put(
                            new TopicPartition(record.topic(), record.partition()),
                            new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                transactions++;
                if (transactions % 4 == 3) {
                    producer.abortTransaction();
                    for (TopicPartition one : offsets.keySet()) {
                        OffsetAndMetadata before = consumer.committed(Set.of(one)).get(one);
                        consumer.seek(one, before == null ? 0 : before.offset());
                    }
                } else {
                    producer.commitTransaction();
                    copied += records.count();
                }
            }
        }
        found.put("copied", copied);
        found.put("transactions", transactions);
    }
}
