package headrace;

import headrace.Main.Arguments;
import java.io.FileWriter;
import java.io.IOException;
import java.io.Writer;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * One member of a group, to be stopped, paused and killed: the Java form of {@code tests/compat/group_member.py}.
 *
 * <p>Every value is noted in the file {@code notes} before its offset is committed. In {@code events} stands when which
 * partition was taken and given up, by the clock that all processes of the machine share. SIGTERM makes it leave.
 */
final class Member {
    private Member() {}

    private static final class Events implements ConsumerRebalanceListener {
        private final Writer file;

        Events(String path) throws IOException {
            file = new FileWriter(path, true);
        }

        private synchronized void note(String what, Collection<TopicPartition> partitions) {
            try {
                for (TopicPartition one : partitions) {
                    file.write(System.nanoTime() + " " + what + " " + one.topic() + " " + one.partition() + "\n");
                }
                file.flush();
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            note("taken", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            note("given_up", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            note("lost", partitions);
        }
    }

    static void run(Arguments arguments, Map<String, Object> found) throws Exception {
        Map<String, Object> defaults = new HashMap<>(Map.of(
                "group.id", arguments.get("group"),
                "auto.offset.reset", "earliest",
                "enable.auto.commit", "false",
                "max.poll.records", "50",
                "max.poll.interval.ms", arguments.get("rebalance_ms")));
        if (!"consumer".equals(arguments.options().get("group.protocol"))) {
            defaults.put("session.timeout.ms", arguments.get("session_ms"));
            defaults.put("heartbeat.interval.ms", arguments.get("heartbeat_ms"));
        }
        var consumer =
                new KafkaConsumer<>(arguments.settings(defaults), new StringDeserializer(), new StringDeserializer());
        CountDownLatch closed = new CountDownLatch(1);
        boolean[] stop = new boolean[1];
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stop[0] = true;
            consumer.wakeup();
            try {
                closed.await();
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }));
        try (Writer notes = new FileWriter(arguments.get("notes"), true)) {
            consumer.subscribe(List.of(arguments.get("topic")), new Events(arguments.get("events")));
            while (!stop[0]) {
                try {
                    ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                    if (records.isEmpty()) {
                        continue;
                    }
                    for (ConsumerRecord<String, String> record : records) {
                        notes.write(record.value() + "\n");
                    }
                    notes.flush();
                    consumer.commitSync();
                } catch (KafkaException error) {
                    // What a rebalance takes away while it works (a commit that is refused) is a member's daily life.
                    System.err.println(error);
                }
            }
        } finally {
            consumer.close(CloseOptions.timeout(Duration.ofSeconds(10)));
            closed.countDown();
        }
    }
}
