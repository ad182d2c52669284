package headrace;

import headrace.Main.Arguments;
import java.lang.reflect.Field;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The Admin client: topics with their settings and records, groups with their offsets, and the cluster. */
final class Admins {
    private Admins() {}

    interface Call {
        KafkaFuture<?> start() throws Exception;
    }

    static Admin open(Arguments arguments) {
        return Admin.create(arguments.settings(Map.of("default.api.timeout.ms", "30000")));
    }

    static <T> T wait(KafkaFuture<T> future) throws Exception {
        return future.get(Main.DEADLINE.toSeconds(), TimeUnit.SECONDS);
    }

    /** The name of the error that a call ends with, or "none". */
    static String error(Call call) throws Exception {
        try {
            wait(call.start());
            return "none";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }

    /** Writes v0, v1, ... at one time after the other. Returns the first time. */
    static long write(Arguments arguments, String topic, int partition, int count) throws Exception {
        long start = System.currentTimeMillis();
        try (var producer = new KafkaProducer<>(
                arguments.settings(Map.of()), new StringSerializer(), new StringSerializer())) {
            for (int at = 0; at < count; at++) {
                producer.send(new ProducerRecord<>(topic, partition, start + at, "k" + at, "v" + at)).get();
            }
        }
        return start;
    }

    static void topics(Arguments arguments, Map<String, Object> found) throws Exception {
        String topic = arguments.get("topic");
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = open(arguments)) {
            NewTopic asked = new NewTopic(topic, 3, (short) 1).configs(Map.of("retention.ms", "3600000"));
            wait(admin.createTopics(List.of(asked)).all());
            found.put("created twice", error(() -> admin.createTopics(List.of(asked)).all()));
            found.put("bad setting", error(() -> admin.createTopics(
                            List.of(new NewTopic(topic + "-bad", 1, (short) 1).configs(Map.of("retention.ms", "soon"))))
                    .all()));
            found.put("bad name", error(() -> admin.createTopics(List.of(new NewTopic("a b", 1, (short) 1)))
                    .all()));

            DescribeTopicsOptions options = new DescribeTopicsOptions().includeAuthorizedOperations(true);
            TopicDescription described =
                    wait(admin.describeTopics(TopicCollection.ofTopicNames(List.of(topic)), options).allTopicNames())
                            .get(topic);
            found.put("partitions", described.partitions().size());
            found.put("operations", described.authorizedOperations().size());
            found.put("by id", wait(admin.describeTopics(TopicCollection.ofTopicIds(List.of(described.topicId())))
                            .allTopicIds())
                    .get(described.topicId())
                    .name());
            found.put("no such topic", error(() -> admin.describeTopics(List.of(topic + "-missing"))
                    .allTopicNames()));

            wait(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all());
            found.put("listed", wait(admin.listTopics().names()).contains(topic));

            wait(admin.incrementalAlterConfigs(Map.of(resource, List.of(
                            new AlterConfigOp(new ConfigEntry("segment.bytes", "1048576"), AlterConfigOp.OpType.SET),
                            new AlterConfigOp(new ConfigEntry("retention.ms", null), AlterConfigOp.OpType.DELETE),
                            new AlterConfigOp(
                                    new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND))))
                    .all());
            Config config = wait(admin.describeConfigs(List.of(resource)).all()).get(resource);
            Map<String, String> configured = new TreeMap<>();
            for (String name : List.of("segment.bytes", "retention.ms", "cleanup.policy")) {
                configured.put(name, config.get(name).value() + " " + config.get(name).source());
            }
            found.put("configured", configured);
            found.put("no such setting", error(() -> admin.incrementalAlterConfigs(Map.of(resource, List.of(
                            new AlterConfigOp(new ConfigEntry("no.such", "1"), AlterConfigOp.OpType.SET))))
                    .all()));

            found.put("settings missing", missing(config));
            String copy = topic + "-copy";
            Map<String, String> everything = new TreeMap<>();
            config.entries().forEach(one -> everything.put(one.name(), one.value()));
            found.put("every setting set", error(() -> admin.createTopics(
                            List.of(new NewTopic(copy, 1, (short) 1).configs(everything)))
                    .all()));
            found.put("one bad record", badRecord(arguments, copy));

            long start = write(arguments, topic, 0, 5);
            TopicPartition first = new TopicPartition(topic, 0);
            Map<String, Object> offsets = new TreeMap<>();
            Map<String, OffsetSpec> specs = Map.of(
                    "earliest", OffsetSpec.earliest(),
                    "latest", OffsetSpec.latest(),
                    "max timestamp", OffsetSpec.maxTimestamp(),
                    "by time", OffsetSpec.forTimestamp(start + 2),
                    "earliest local", OffsetSpec.earliestLocal(),
                    "latest tiered", OffsetSpec.latestTiered());
            for (var spec : specs.entrySet()) {
                ListOffsetsResultInfo info =
                        wait(admin.listOffsets(Map.of(first, spec.getValue())).all()).get(first);
                offsets.put(spec.getKey(), info.offset());
            }
            found.put("offsets", offsets);
            found.put("deleted below", wait(admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(2)))
                            .lowWatermarks()
                            .get(first))
                    .lowWatermark());
            found.put("producers", wait(admin.describeProducers(List.of(first)).all())
                    .get(first)
                    .activeProducers()
                    .size());
            wait(admin.deleteTopics(List.of(topic)).all());
            found.put("deleted", !wait(admin.listTopics().names()).contains(topic));
        }
    }

    /** Settings that the client's library knows, but for those that Kafka 4 has dropped, and the node does not tell. */
    private static List<String> missing(Config config) throws Exception {
        List<String> names = new ArrayList<>();
        for (Field field : TopicConfig.class.getFields()) {
            boolean isSetting = field.getName().endsWith("_CONFIG") && !field.isAnnotationPresent(Deprecated.class);
            if (isSetting && config.get((String) field.get(null)) == null) {
                names.add((String) field.get(null));
            }
        }
        return names;
    }

    /** What a producer is told of three records in one batch, of which a compacted topic cannot take the second. */
    private static List<String> badRecord(Arguments arguments, String topic) throws Exception {
        List<String> told = new ArrayList<>();
        try (var producer = new KafkaProducer<>(
                arguments.settings(Map.of("linger.ms", "1000")), new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (String key : Arrays.asList("a", null, "c")) {
                sent.add(producer.send(new ProducerRecord<>(topic, 0, key, "v")));
            }
            producer.flush();
            for (Future<RecordMetadata> one : sent) {
                try {
                    one.get();
                    told.add("stored");
                } catch (ExecutionException error) {
                    told.add(error.getCause().getClass().getSimpleName());
                }
            }
        }
        return told;
    }

    static void groups(Arguments arguments, Map<String, Object> found) throws Exception {
        String topic = arguments.get("topic");
        try (Admin admin = open(arguments)) {
            wait(admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all());
            write(arguments, topic, 0, 4);
            for (String protocol : List.of("classic", "consumer")) {
                found.put(protocol, group(arguments, admin, topic, protocol));
            }
            wait(admin.deleteTopics(List.of(topic)).all());
        }
    }

    private static Map<String, Object> group(Arguments arguments, Admin admin, String topic, String protocol)
            throws Exception {
        Map<String, Object> found = new TreeMap<>();
        String group = topic + "-" + protocol;
        TopicPartition first = new TopicPartition(topic, 0);
        Map<String, Object> defaults = Map.of(
                "group.id", group,
                "group.protocol", protocol,
                "auto.offset.reset", "earliest",
                "enable.auto.commit", "false");
        try (var consumer =
                new KafkaConsumer<>(arguments.settings(defaults), new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            int count = 0;
            long end = System.nanoTime() + Main.DEADLINE.toNanos();
            while (count < 4 && System.nanoTime() < end) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                count += records.count();
            }
            consumer.commitSync();
            found.put("read", count);
            found.put("group metadata", consumer.groupMetadata().groupId().equals(group));
            var described = wait(admin.describeConsumerGroups(List.of(group)).all()).get(group);
            found.put("state", described.groupState().toString());
            found.put("type", described.type().toString());
            var member = described.members().iterator().next();
            found.put("assigned", member.assignment().topicPartitions().size());
            found.put("upgraded", member.upgraded().map(String::valueOf).orElse("unknown"));
            found.put("deleted while used", error(() -> admin.deleteConsumerGroups(List.of(group)).all()));
            found.put("offset deleted while used", error(
                    () -> admin.deleteConsumerGroupOffsets(group, Set.of(first)).all()));
            found.put("offset set while used", error(() -> admin.alterConsumerGroupOffsets(
                            group, Map.of(first, new OffsetAndMetadata(0)))
                    .all()));
            consumer.unsubscribe();
        }
        Collection<GroupListing> listed = wait(admin.listGroups(new ListGroupsOptions()).all());
        found.put("listed", listed.stream()
                .filter(one -> one.groupId().equals(group))
                .map(one -> one.type().map(Object::toString).orElse("?"))
                .toList());
        found.put("committed", committed(admin, group, first));
        wait(admin.alterConsumerGroupOffsets(group, Map.of(first, new OffsetAndMetadata(1, Optional.empty(), "by hand")))
                .all());
        found.put("set", committed(admin, group, first));
        wait(admin.deleteConsumerGroupOffsets(group, Set.of(first)).all());
        found.put("after deletion", String.valueOf(committed(admin, group, first)));
        wait(admin.deleteConsumerGroups(List.of(group)).all());
        found.put("described when gone", error(() -> admin.describeConsumerGroups(List.of(group)).all()));
        found.put("removed from nothing", error(() -> admin.removeMembersFromConsumerGroup(
                        group, new RemoveMembersFromConsumerGroupOptions())
                .all()));
        return found;
    }

    private static Object committed(Admin admin, String group, TopicPartition partition) throws Exception {
        OffsetAndMetadata one =
                wait(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).get(partition);
        return one == null ? null : List.of(one.offset(), one.metadata());
    }

    static void cluster(Arguments arguments, Map<String, Object> found) throws Exception {
        try (Admin admin = open(arguments)) {
            var described = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
            int id = wait(described.controller()).id();
            found.put("nodes", wait(described.nodes()).size());
            found.put("controller", id);
            found.put("cluster id", !wait(described.clusterId()).isEmpty());
            found.put("operations", wait(described.authorizedOperations()).size());
            var quorum = wait(admin.describeMetadataQuorum().quorumInfo());
            found.put("quorum", List.of(quorum.leaderId(), quorum.voters().size()));
            var dirs = wait(admin.describeLogDirs(List.of(id)).allDescriptions()).get(id);
            found.put("log dirs", dirs.size());
            found.put("log dir errors", dirs.values().stream().filter(one -> one.error() != null).count());
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, String.valueOf(id));
            Config config = wait(admin.describeConfigs(List.of(broker)).all()).get(broker);
            found.put("broker settings", List.of("message.max.bytes", "log.retention.ms", "num.partitions").stream()
                    .filter(name -> config.get(name) != null)
                    .toList());
            found.put("features", wait(admin.describeFeatures().featureMetadata()).finalizedFeatures().size());
            found.put("resources", new TreeSet<>(wait(admin.listConfigResources(
                            Set.of(ConfigResource.Type.BROKER), new ListConfigResourcesOptions())
                    .all())
                    .stream()
                    .map(ConfigResource::name)
                    .toList()));
            found.put("quotas", wait(admin.describeClientQuotas(ClientQuotaFilter.all()).entities()).size());
            found.put("transactions", wait(admin.listTransactions().all()) != null);
            found.put("no such transaction", error(() -> admin.describeTransactions(List.of("no-such-id")).all()));
            found.put("metrics", !admin.metrics().isEmpty());

            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, arguments.get("topic"));
            wait(admin.incrementalAlterConfigs(Map.of(group, List.of(new AlterConfigOp(
                            new ConfigEntry("consumer.session.timeout.ms", "50000"), AlterConfigOp.OpType.SET))))
                    .all());
            found.put("group setting", wait(admin.describeConfigs(List.of(group)).all())
                    .get(group)
                    .get("consumer.session.timeout.ms")
                    .value());
            found.put("refused", refusals(admin));
        }
    }

    /** What this node does not do: each call must end, with an error that says so. */
    private static Map<String, String> refusals(Admin admin) throws Exception {
        AclBinding binding = new AclBinding(
                new ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL),
                new AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW));
        Map<String, Call> calls = new TreeMap<>();
        calls.put("describe acls", () -> admin.describeAcls(AclBindingFilter.ANY).values());
        calls.put("create acls", () -> admin.createAcls(List.of(binding)).all());
        calls.put("delete acls", () -> admin.deleteAcls(List.of(binding.toFilter())).all());
        calls.put("scram", () -> admin.describeUserScramCredentials().all());
        calls.put("tokens", () -> admin.describeDelegationToken().delegationTokens());
        calls.put("reassignments", () -> admin.listPartitionReassignments().reassignments());
        calls.put("elections", () -> admin.electLeaders(
                        ElectionType.PREFERRED, Set.of(new TopicPartition("no-such", 0)))
                .all());
        Map<String, String> found = new TreeMap<>();
        for (var call : calls.entrySet()) {
            found.put(call.getKey(), error(call.getValue()));
        }
        return found;
    }
}
