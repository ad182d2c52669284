package headrace;

import headrace.Main.Arguments;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A share consumer at a queue: accepts most, rejects one, releases one, and renews one before it accepts it. */
final class Shares {
    private Shares() {}

    static void run(Arguments arguments, Map<String, Object> found) throws Exception {
        String topic = arguments.get("topic");
        int wanted = arguments.number("count");
        Map<String, Object> defaults = Map.of(
                "group.id", topic, "share.acknowledgement.mode", "explicit", "max.poll.records", "10");
        Map<String, Integer> deliveries = new TreeMap<>();
        Map<String, Integer> accepted = new TreeMap<>();
        try (var consumer = new KafkaShareConsumer<>(
                arguments.settings(defaults), new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            int done = 0;
            long end = System.nanoTime() + Main.DEADLINE.toNanos();
            while (done < wanted && System.nanoTime() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    deliveries.merge(record.value(), 1, Integer::sum);
                    boolean isFirst = record.deliveryCount().orElse((short) 0) == 1;
                    if (record.value().equals("bad")) {
                        consumer.acknowledge(record, AcknowledgeType.REJECT);
                        done++;
                    } else if (record.value().equals("later") && isFirst) {
                        consumer.acknowledge(record, AcknowledgeType.RELEASE);
                    } else if (record.value().equals("slow") && isFirst && !accepted.containsKey("slow renewed")) {
                        consumer.acknowledge(record, AcknowledgeType.RENEW);
                        accepted.put("slow renewed", 1);
                    } else {
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                        accepted.merge(record.value(), 1, Integer::sum);
                        done++;
                    }
                }
                consumer.commitSync().forEach((partition, error) -> error.ifPresent(one -> {
                    throw one;
                }));
            }
            found.put("done", done);
            try (Admin admin = Admins.open(arguments)) {
                var group = Admins.wait(admin.describeShareGroups(List.of(topic)).all()).get(topic);
                found.put("state", group.groupState().toString());
                found.put("members", group.members().size());
                found.put("offsets", Admins.wait(admin.listShareGroupOffsets(Map.of(
                                        topic, new ListShareGroupOffsetsSpec()))
                                .partitionsToOffsetInfo(topic))
                        .size());
            }
        }
        try (Admin admin = Admins.open(arguments)) {
            TopicPartition first = new TopicPartition(topic, 0);
            long last = Admins.wait(admin.listOffsets(Map.of(first, OffsetSpec.latest())).all())
                    .get(first)
                    .offset();
            found.put("moved on", Admins.error(() -> admin.alterShareGroupOffsets(topic, Map.of(first, last)).all()));
            found.put("moved back", Admins.error(() -> admin.alterShareGroupOffsets(topic, Map.of(first, 0L)).all()));
            found.put("forgotten", Admins.error(() -> admin.deleteShareGroupOffsets(topic, Set.of(topic)).all()));
            found.put("deleted", Admins.error(() -> admin.deleteShareGroups(List.of(topic)).all()));
        }
        found.put("deliveries", deliveries);
        found.put("accepted", accepted);
    }
}
