package headrace;

import headrace.Main.Arguments;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/** Streams' word count with exactly_once_v2, until it is told to stop or killed. Prints "running" once it works. */
final class WordCount {
    private WordCount() {}

    static void run(Arguments arguments, Map<String, Object> found) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments.get("input"), Consumed.with(Serdes.String(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                        .withKeySerde(Serdes.String())
                        .withValueSerde(Serdes.Long()))
                .toStream()
                .mapValues(String::valueOf)
                .to(arguments.get("output"), Produced.with(Serdes.String(), Serdes.String()));
        Properties settings = new Properties();
        settings.putAll(arguments.settings(new HashMap<>(Map.of(
                "application.id", arguments.get("application"),
                "processing.guarantee", "exactly_once_v2",
                "commit.interval.ms", "100",
                "state.dir", arguments.get("state"),
                "session.timeout.ms", "6000",
                "heartbeat.interval.ms", "500"))));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        CountDownLatch stopped = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(2);
            return null;
        });
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                System.out.println("running");
                System.out.flush();
            }
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close();
            stopped.countDown();
        }));
        streams.start();
        stopped.await();
    }
}
